#!/bin/sh
# Builds a stand-in for python:*-slim from Debian's packages, for machines that reach no registry: base.sh REFERENCE
# The packages are unpacked, and their scripts do not run. The same packages give the same image.
set -eu
here=$(realpath "$(dirname "$0")")
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$work/packages" "$root/var/lib/dpkg/status.d"
cd "$work/packages"
said=$(apt-get download -q base-files base-passwd busybox-static ca-certificates netbase libc6 libcrypt1 libgcc-s1 \
	libstdc++6 libssl3 libffi8 libsqlite3-0 libbz2-1.0 liblzma5 zlib1g libuuid1 libexpat1 libpython3.11-minimal \
	libpython3.11-stdlib python3.11-minimal python3.11 python3-pip-whl 2>&1) || {
	echo "packages of Debian not found: $(echo "$said" | grep -m 1 -e ^E: -e 'not found'): run apt-get update, or set PYTHON_IMAGE=" >&2
	exit 2
}
for package in *.deb; do
	dpkg-deb -x "$package" "$root"
	# Scanners look here for what an image without dpkg consists of.
	dpkg-deb -f "$package" > "$root/var/lib/dpkg/status.d/${package%%_*}"
done
cd "$root"
rm -rf usr/share/lintian usr/share/man usr/share/info usr/share/locale usr/share/doc-base usr/lib/python3.11/EXTERNALLY-MANAGED \
	usr/lib/*/gconv
find usr/share/doc -type f ! -name copyright -delete
find usr/share/doc -type d -empty -delete
for applet in $(./bin/busybox --list); do [ -e "bin/$applet" ] || ln -s busybox "bin/$applet"; done
ln -s ../../bin/busybox usr/bin/env
cp usr/share/base-passwd/passwd.master etc/passwd
cp usr/share/base-passwd/group.master etc/group
printf 'hosts: files dns\n' > etc/nsswitch.conf
mkdir -p etc/ssl/certs usr/lib/ssl usr/local/bin usr/local/lib/python3.11/dist-packages
find usr/share/ca-certificates -name '*.crt' | LC_ALL=C sort | xargs cat > etc/ssl/certs/ca-certificates.crt
ln -s ../../../etc/ssl/certs/ca-certificates.crt usr/lib/ssl/cert.pem
ln -s ../../bin/python3.11 usr/local/bin/python
ln -s python usr/local/bin/python3
./bin/busybox unzip -q usr/share/python-wheels/pip-*.whl -d usr/local/lib/python3.11/dist-packages
rm -r usr/share/python-wheels
cd "$work"
tar --sort=name --owner=0 --group=0 --numeric-owner -C "$root" -cf base.tar .
printf 'FROM scratch\nADD base.tar /\nENV PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8\nCMD ["python"]\n' > Dockerfile
"$here/engine.sh" build --quiet --tag "$1" . >/dev/null
echo "$1"
