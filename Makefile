# One Makefile, no recursion into directories: make sees every file and every edge.
#
#   make demo      install what is missing, build, and play the demonstration
#   make run       the same server in the foreground
#   make check     install what is missing, run every test
#   make asan      the same tests against ASan+UBSan builds, leaks counted
#   make tsan      the same tests against a daemon built with ThreadSanitizer
#   make asan-short, tsan-short   all unit tests of these, and a way through every folder
#   make check-vm  install it in virtual machines with systemd, and test it there
#   make check-vm-short, check-vm-long  the same with the most telling tests, and with all
#   make check-chaos  break one thing after the other under load (ROUNDS=100, SEED=N)
#   make soak      mixed load for MINUTES=30: what grows, and what gets slower (SEED=N)
#   make fuzz      readers of foreign bytes against SECONDS=20 of invented ones
#   make cov       which lines the tests run, by folder
#   make bench     measure, side by side with the tools it competes with (ROWS="name ...", SHORT=1)
#   make lint      everything static        make format   rewrite in house style
#   make install   programs, unit, users and directories (DESTDIR, PREFIX=/usr)
#
# Every folder is an archive and every program a main.o linked on top of the
# archives in the order of the design, so that the linker proves the layering.
VARIANT ?= release
BUILD ?= build
B := $(BUILD)/$(VARIANT)
CC ?= cc
PKG ?= pkg-config
Q := $(if $(V),,@)

# -- what is built ------------------------------------------------------------
programs := cloisterd cloister-runner cloister-guest
dirs.cloisterd := daemon daemon/api daemon/status daemon/turn daemon/harness daemon/setup daemon/tool daemon/mcp \
	daemon/model daemon/doctor daemon/sandbox daemon/link daemon/launcher daemon/event daemon/tenant daemon/http daemon/store \
	daemon/confine daemon/metrics common
dirs.cloister-runner := runner common
dirs.cloister-guest := guest common
main.cloisterd := daemon/main
main.cloister-runner := runner/main
main.cloister-guest := guest/main
pkgs.cloisterd := libmicrohttpd libpq json-c libcurl libsodium libseccomp openssl
pkgs.cloister-runner := json-c libmnl libnftnl libseccomp
pkgs.cloister-guest := json-c
pkgs := $(sort $(foreach p,$(programs),$(pkgs.$p)))
# Threads are the daemon's: beside one with ThreadSanitizer the sandbox is as it is released.
instrumented := $(if $(filter tsan,$(VARIANT)),cloisterd,$(programs))
dirs := $(sort $(foreach p,$(instrumented),$(dirs.$p)))

# -- how ----------------------------------------------------------------------
std := -std=gnu11 -D_GNU_SOURCE -I. -I$B/gen
warn := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition \
	-Wpointer-arith -Wcast-qual -Wwrite-strings -Wformat=2 -Wundef -Wvla -Wswitch-enum \
	-Wnull-dereference -Wimplicit-fallthrough -fno-common -Wno-missing-field-initializers -Werror
harden := -fstack-protector-strong -fstack-clash-protection -fcf-protection \
	-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3
# These install what is missing first, a compiler too, and then call make again.
front := prepare demo run check asan asan-short tsan tsan-short bench cov lint check-vm check-vm-short check-vm-long check-chaos soak fuzz
building := $(filter-out $(front) clean format unit,$(or $(MAKECMDGOALS),all))
ifeq ($(findstring clang,$(if $(building),$(shell $(CC) --version))),)
warn += -Wjump-misses-init -Wlogical-op -Wduplicated-cond -Wduplicated-branches
harden += -ftrivial-auto-var-init=zero
endif
c.release := -O2 -g -fPIE $(harden)
l.release := -pie -Wl,-z,relro,-z,now,-z,noexecstack
lguest.release := -static-pie -Wl,-z,relro,-z,now,-z,noexecstack
c.asan := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
l.asan := $(c.asan)
lguest.asan := $(c.asan)
c.tsan := -O1 -g -fno-omit-frame-pointer -fsanitize=thread
l.tsan := $(c.tsan)
c.fuzz := -O1 -g -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
l.fuzz := -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
# Counters live in a file that is mapped before main(): a process that is killed, or that may
# open nothing any more, has counted all the same.
c.cov := -O1 -g -fprofile-instr-generate=$(abspath $B)/profile/%p%c.profraw -fcoverage-mapping \
	-mllvm -runtime-counter-relocation -Wno-unused-variable # clang sees no use in a cleanup
l.cov := -pie $(c.cov)
lguest.cov := -static-pie $(c.cov)
# libmicrohttpd must find daemon/http/pages.c before itself.
link.cloisterd = $(l.$(VARIANT)) -Wl,--export-dynamic-symbol=MHD_queue_response
link.cloister-runner = $(l.$(VARIANT))
link.cloister-guest = $(lguest.$(VARIANT))
# Libraries of a program; the release guest is static.
libs = $(shell $(PKG) $(if $(filter cloister-guest/release,$1/$(VARIANT)),--static) --libs $(pkgs.$1))

ifneq ($(building),)
pkg_cflags := $(shell $(PKG) --cflags $(pkgs) || echo missing)
$(if $(filter missing,$(pkg_cflags)),$(error some of these are not installed: $(pkgs); 'make prepare' installs them))
endif
strict = $(if $(filter runner/% common/% guest/%,$<),-Wconversion)
flags = $(std) $(pkg_cflags) $(warn) $(c.$(VARIANT)) $(CPPFLAGS) $(CFLAGS)

all: $(programs:%=$B/%)

# -- for people ---------------------------------------------------------------------
prepare: ; $Qscripts/prepare all
demo: prepare
	$Q$(MAKE) --no-print-directory all && scripts/demo $B
run: prepare
	$Q$(MAKE) --no-print-directory all && exec scripts/run $B
check: prepare
	$Q$(MAKE) --no-print-directory -j$$(nproc) all tests && scripts/check $B
ROUNDS ?= 100
check-chaos: prepare
	$Q$(MAKE) --no-print-directory all && \
		scripts/check-chaos --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) $B
MINUTES ?= 30
soak: prepare
	$Q$(MAKE) --no-print-directory all && \
		scripts/soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $B
asan asan-short:
	$Qscripts/prepare all --test
	$Q$(MAKE) --no-print-directory -j$$(nproc) VARIANT=asan all tests && \
		scripts/check --test $(if $(filter %-short,$@),--short) $(BUILD)/asan
tsan tsan-short: prepare
	$Q$(MAKE) --no-print-directory -j$$(nproc) VARIANT=tsan all tests && \
		scripts/check --threads $(if $(filter %-short,$@),--short) $(BUILD)/tsan
cov:
	$Qscripts/prepare all --cov
	$Q$(MAKE) --no-print-directory -j$$(nproc) VARIANT=cov CC=clang all tests && scripts/cov $(BUILD)/cov
lint:
	$Qscripts/prepare packages --lint
	$Q$(MAKE) --no-print-directory -j$$(nproc) lint-all

# -- programs -------------------------------------------------------------------
mains := $(foreach p,$(programs),$(main.$p).c)
sources = $(filter-out $(mains) $1/test_%.c,$(sort $(wildcard $1/*.c)))
archive = $B/lib/$(subst /,-,$1).a

define dir_rule
$(call archive,$1): $(patsubst %.c,$B/%.o,$(call sources,$1))
	@mkdir -p $$(@D); echo "  AR    $$@"; rm -f $$@; $(AR) rcs $$@ $$^
endef
$(foreach d,$(dirs),$(eval $(call dir_rule,$d)))

define program_rule
$B/$1: $B/$(main.$1).o $(foreach d,$(dirs.$1),$(call archive,$d))
	@echo "  LD    $$@"
	$$Q$$(CC) $$(link.$1) $$(LDFLAGS) -o $$@ $$^ $$(call libs,$1) -lpthread $$(LDLIBS)
endef
$(foreach p,$(instrumented),$(eval $(call program_rule,$p)))

taken := $(filter-out $(instrumented),$(programs))
$(taken:%=$B/%): $B/%: released ; $Qcmp -s $(BUILD)/release/$* $@ || cp $(BUILD)/release/$* $@
released: FORCE ; $Q$(MAKE) --no-print-directory VARIANT=release $(taken:%=$(BUILD)/release/%)

$B/%.o: %.c $B/flags
	@mkdir -p $(@D); echo "  CC    $<"
	$Q$(CC) $(flags) $(strict) -MMD -MP -c -o $@ $<

$B/daemon/api/openapi.o: daemon/api/openapi.json

$B/flags: FORCE # changes only when the flags do, and then rebuilds everything
	@mkdir -p $(@D); echo '$(CC) $(flags)' | cmp -s - $@ || echo '$(CC) $(flags)' >$@

# -- embedded SQL (daemon/store/sql.c includes what is generated here) ------------
sql_files := $(sort $(wildcard sql/*/*.sql))
$B/gen/sql_files.h: sql/embed.awk $(sql_files)
	@mkdir -p $(@D); echo "  SQL   $@"; awk -f $^ >$@
$B/daemon/store/sql.o $B/daemon/store/sql.c.an $B/daemon/store/sql.c.tidy: $B/gen/sql_files.h

# -- unit tests: beside the module; each links its own folder and all below it ------
tests := $(sort $(foreach d,$(dirs),$(wildcard $d/test_*.c)))
test_bins := $(patsubst %.c,$B/%,$(tests))
test_prog = $(if $(filter runner/%,$1),cloister-runner,$(if $(filter daemon/%,$1),cloisterd,$(lastword $(instrumented))))
test_pkgs = $(pkgs.$(call test_prog,$1))
define test_rule
$B/$1: $B/$1.o $(foreach d,$(dirs.$(call test_prog,$1)),$(call archive,$d))
	@echo "  LD    $$@"
	$$Q$$(CC) $$(l.$$(VARIANT)) -o $$@ $$^ $$(shell $$(PKG) --libs cmocka $(call test_pkgs,$1)) -lpthread
endef
$(foreach t,$(tests:.c=),$(eval $(call test_rule,$t)))
tests: $(programs:%=$B/%) $(test_bins)

# -- fuzz targets: a file each, on top of the programs' archives --------------------------
SECONDS ?= 20
fuzz_sources := $(sort $(wildcard fuzz/*.c))
fuzz_shared := fuzz/files.c fuzz/other_json.c fuzz/root.c
# Parts of one: of "api", and for readers of another program.
fuzz_parts := $(wildcard fuzz/api_*.c) fuzz/cgroup_daemon.c
part.fuzz/api := $(patsubst %.c,$B/%.o,$(wildcard fuzz/api_*.c))
part.fuzz/cgroup := $B/fuzz/cgroup_daemon.o $(call archive,daemon/launcher) $(call archive,daemon/doctor)
fuzz_targets := $(patsubst %.c,%,$(filter-out $(fuzz_shared) $(fuzz_parts),$(fuzz_sources)))
fuzz_runner := fuzz/cgroup fuzz/cmdline fuzz/mounts fuzz/netlink fuzz/nft fuzz/report fuzz/words
# What it stands in for is in the archives too; its own comes first.
l.fuzz/api := -Wl,-z,muldefs
fuzz_prog = $(if $(filter $(fuzz_runner),$1),cloister-runner,$(if $(filter fuzz/inside fuzz/tree,$1),cloister-guest,cloisterd))
define fuzz_rule
$B/$1: $B/$1.o $(part.$1) $(fuzz_shared:%.c=$B/%.o) $(foreach d,$(dirs.$(call fuzz_prog,$1)),$(call archive,$d))
	@echo "  LD    $$@"
	$$Q$$(CC) $$(l.fuzz) $$(l.$1) -o $$@ $$^ $$(shell $$(PKG) --libs jansson $(pkgs.$(call fuzz_prog,$1))) -lpthread
endef
$(foreach t,$(fuzz_targets),$(eval $(call fuzz_rule,$t)))
# The log of scripts/fuzz names what was built; "+": with changes.
fuzz-targets: $(fuzz_targets:%=$B/%)
	@git describe --always --abbrev=12 --exclude='*' --dirty=+ >$B/fuzz/commit 2>/dev/null || \
		echo unknown >$B/fuzz/commit
fuzz:
	$Qscripts/prepare packages --fuzz
	$Q$(MAKE) --no-print-directory -j$$(nproc) VARIANT=fuzz CC=clang fuzz-targets && \
		scripts/fuzz $(BUILD)/fuzz $(SECONDS)

# -- bench: load generators, where a script would measure itself --------------------------
bench_programs := drain replay streams turns
bench_sources := $(sort $(wildcard bench/*.c))
define bench_rule
$B/bench/$1: $B/bench/$1.o $B/bench/net.o $(call archive,common)
	@echo "  LD    $$@"
	$$Q$$(CC) $$(l.$$(VARIANT)) -o $$@ $$^ $$(shell $$(PKG) --libs libpq json-c) -lpthread
endef
$(foreach p,$(bench_programs),$(eval $(call bench_rule,$p)))
bench-programs: $(bench_programs:%=$B/bench/%)
bench:
	$Qscripts/prepare all --bench
	$Q$(MAKE) --no-print-directory -j$$(nproc) all bench-programs && scripts/bench $B

# -- lint -------------------------------------------------------------------------
csrc := $(sort $(foreach d,$(dirs),$(wildcard $d/*.c))) $(fuzz_sources) $(bench_sources)
hsrc := $(sort $(foreach d,$(dirs) fuzz bench,$(wildcard $d/*.h)))
lint-all: lint-format lint-size lint-headers lint-banned lint-shell lint-nix analyze tidy
# The formatter's output differs between versions, so only version 14 judges.
lint-format:
	$Qif clang-format --version | grep -q 'version 14\.'; then clang-format --dry-run -Werror $(csrc) $(hsrc); \
	else echo "format not checked: needs clang-format 14"; fi
lint-shell: ; $Qshellcheck -x $(filter-out scripts/demo,$(wildcard scripts/*)) .ci/run \
	nix/render nix/prepare-tenants nix/upgrade-database
# As the driver of NixOS's tests does before it runs the script.
lint-nix:
	$Qmkdir -p $B && cat integration/nix/offered.py nix/vm-client.py nix/vm-test.py >$B/vm_script.py && \
		MYPYPATH=integration mypy --no-implicit-optional --cache-dir=$B/mypy $B/vm_script.py
lint-headers:
	$Qfor h in $(hsrc); do $(CC) $(std) $(pkg_cflags) -fsyntax-only -x c $$h || exit 1; done
lint-size:
	$Qwc -l $(csrc) $(hsrc) | awk '$$2 != "total" && $$1 > 1000 { print $$2 ": " $$1 " lines, at most 1000"; bad = 1 } END { exit bad }'
lint-banned: all
	$Q! nm -uA $(B)/lib/*.a | grep -E ' U (__)?(gets|strcpy|strcat|strncpy|strncat|strtok|v?sprintf|system|popen|alloca|mktemp|tmpnam)(_chk)?$$'
analyze: $(csrc:%=$B/%.an)
$B/%.an: % $B/flags
	@mkdir -p $(@D); echo "  ANLZ  $<"
	$Q$(CC) $(flags) -fanalyzer -c -o /dev/null $< && touch $@
tidy: $(csrc:%=$B/%.tidy)
$B/%.tidy: % $B/flags .clang-tidy
	@mkdir -p $(@D); echo "  TIDY  $<"
	$Qclang-tidy --quiet $< -- $(std) $(pkg_cflags) 2>/dev/null && touch $@
# make lint-one F="a.c b.c": the slow checks on some files only
lint-one: $(F:%=$B/%.an) $(F:%=$B/%.tidy) ; $Qclang-format --dry-run -Werror $(F)
format: ; $Qclang-format -i $(csrc) $(hsrc)

# -- service: the unit, installation, the machine that tests both ----------------------
PREFIX ?= /usr
# nix/cloister.service is checked in, so that an installation needs no Nix.
# docs/configuration.md is checked in as well, to be read without a build.
configuration: all ; $Qscripts/configuration $B >docs/.configuration && mv docs/.configuration docs/configuration.md
unit: ; $Qnix/render >nix/.cloister.service && mv nix/.cloister.service nix/cloister.service
install: all ; $QDESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' scripts/install $B
check-vm:
	$Qscripts/prepare all --vm
	$Qscripts/check-vm
check-vm-short check-vm-long:
	$Qscripts/prepare all --vm
	$Qscripts/check-vm --$(@:check-vm-%=%)

clean: ; rm -rf $(BUILD)
FORCE:
.PHONY: all tests fuzz-targets bench-programs clean format lint-all lint-format lint-size lint-headers lint-banned lint-shell lint-nix analyze \
	tidy lint-one unit configuration install released $(front) FORCE
.DELETE_ON_ERROR:
.SECONDARY:
-include $(shell find $B -name '*.d' 2>/dev/null)
