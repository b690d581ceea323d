// Keeps an open page up to date. Everything works without this file.
"use strict";

(() => {
  const body = document.body;
  const path = body.dataset.live;
  const skew = Date.parse(body.dataset.now) - Date.now();
  const units = [["d", 86400, 7], ["h", 3600, 10], ["m", 60, 10], ["s", 1, 0]];

  function span(seconds) {
    let left = Math.floor(seconds);
    for (let place = 0; place < units.length; place += 1) {
      const [unit, size, enough] = units[place];
      const count = Math.floor(left / size);
      if (!count && unit !== "s") continue;
      if (count < enough) {
        const smaller = Math.floor((left % size) / units[place + 1][1]);
        if (smaller) return `${count} ${unit} ${smaller} ${units[place + 1][0]}`;
      }
      return `${count} ${unit}`;
    }
    return "0 s";
  }

  function tellAges() {
    const now = Date.now() + skew;
    for (const each of document.querySelectorAll("time[data-age]")) {
      const left = (Date.parse(each.dateTime) - now) / 1000;
      if (Number.isNaN(left)) continue;
      const text = left >= 1 ? `in ${span(left)}` : `${span(-left)} ago`;
      if (each.textContent !== text) each.textContent = text;
    }
  }

  // Makes one element like another, and keeps every node that can stay: focus, selection and what
  // is open stay with it.
  function become(old, next) {
    for (const { name } of [...old.attributes]) {
      if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
    }
    for (const { name, value } of next.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    // What goes away goes first: moving what stays would take its focus.
    const staying = new Set([...next.children].map((each) => each.id));
    const known = new Map();
    for (const each of [...old.children]) {
      if (each.id && !staying.has(each.id)) each.remove();
      else if (each.id) known.set(each.id, each);
    }
    let place = old.firstChild;
    for (const wanted of [...next.childNodes]) {
      const same = wanted.id ? known.get(wanted.id) : place;
      if (same && same.nodeType === wanted.nodeType && same.nodeName === wanted.nodeName
          && (same.id || "") === (wanted.id || "")) {
        // Whatever stands before it goes: were it moved itself, it would lose the focus.
        while (place && place !== same && !known.has(place.id)) {
          const gone = place;
          place = place.nextSibling;
          gone.remove();
        }
        if (same === place) place = place.nextSibling;
        else old.insertBefore(same, place);
        if (same.nodeType === Node.ELEMENT_NODE) become(same, wanted);
        else if (same.data !== wanted.data) same.data = wanted.data;
      } else {
        old.insertBefore(document.importNode(wanted, true), place);
      }
    }
    while (place) {
      const gone = place;
      place = place.nextSibling;
      gone.remove();
    }
  }

  let said = "";
  let saidAt = 0;

  function say() {
    const text = document.querySelector("[data-say]")?.textContent.trim() ?? "";
    // Nobody wants to hear a number each second.
    if (text === said || Date.now() - saidAt < 10000) return;
    saidAt = Date.now();
    said = text;
    document.getElementById("said").textContent = text;
  }

  let isFetching = false;
  let isOutdated = false;

  async function refresh() {
    if (isFetching) {
      isOutdated = true;
      return;
    }
    isFetching = true;
    try {
      do {
        isOutdated = false;
        const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
        // The server has too much to do: what is here stays until the next change.
        if (answer.status === 429 || answer.status === 503) return;
        if (answer.redirected || !answer.ok) {
          location.reload();
          return;
        }
        const next = new DOMParser().parseFromString(await answer.text(), "text/html");
        for (const part of next.querySelectorAll("#main [data-part]")) {
          const old = document.getElementById(part.id);
          if (old) become(old, part);
        }
        tellAges();
        say();
      } while (isOutdated);
    } catch {
      // The stream says when there is something to fetch again.
    } finally {
      isFetching = false;
    }
  }

  function follow() {
    const sign = document.getElementById("live");
    const AGAIN = 10000;
    let source = null;
    let wasLost = false;

    function show(state) {
      sign.hidden = false;
      sign.dataset.state = state;
      sign.querySelector(".word").textContent = state === "on" ? "live" : "not live";
    }

    function open() {
      source = new EventSource(path);
      source.addEventListener("open", () => {
        show("on");
        if (wasLost) refresh();
        wasLost = false;
      });
      source.addEventListener("changed", refresh);
      source.addEventListener("end", () => {
        source.close();
        wasLost = true;
        show("off");
        refresh();
        setTimeout(again, AGAIN);
      });
      source.addEventListener("error", () => {
        wasLost = true;
        show("off");
        // Refused, the browser does not try again of itself; the page says why, or has the news.
        if (source.readyState === EventSource.CLOSED) setTimeout(again, AGAIN);
      });
    }

    function again() {
      if (document.hidden || source.readyState !== EventSource.CLOSED) return;
      refresh();
      open();
    }

    document.addEventListener("visibilitychange", () => {
      if (document.hidden) {
        source?.close();
        wasLost = true;
      } else {
        open();
      }
    });
    if (!document.hidden) open();
    window.addEventListener("pagehide", () => source?.close());
  }

  said = document.querySelector("[data-say]")?.textContent.trim() ?? "";
  setInterval(tellAges, 5000);
  if (path) follow();
})();
