# shellcheck shell=bash
# What apt of this machine knows about Debian: where packages of a release come from, so
# that root filesystems and images come from the same mirror under the same signatures.
# Sourced, never run; needs say, die and update_lists of the caller, and CODENAME.

# What compiling needs, on this machine and in the tested ones.
# shellcheck disable=SC2034 # used by those that source this
BUILD_PACKAGES="gcc libc6-dev libcmocka-dev libcurl4-openssl-dev libjson-c-dev libmicrohttpd-dev
	libmnl-dev libnftnl-dev libpq-dev libseccomp-dev libsodium-dev libssl-dev make
	pkg-config"

# debian_targets: the package lists apt has from Debian itself, one line each:
# repository URI, release as written in the source, code name, source file:entry.
debian_targets() {
	# apt expands these variables, not the shell
	# shellcheck disable=SC2016
	apt-get indextargets \
		--format '$(ORIGIN)|$(COMPONENT)|$(ARCHITECTURE)|$(REPO_URI)|$(RELEASE)|$(CODENAME)|$(SOURCESENTRY)' \
		'Identifier: Packages' |
		awk -F '|' -v arch="$(dpkg --print-architecture)" \
			'$1 == "Debian" && $2 == "main" && $3 == arch { print $4, $5, $6, $7 }'
}

# source_options FILE URI RELEASE: the Signed-By and Trusted settings of the entry for
# this URI and release in an apt source file of either format, as deb822 fields.
source_options() {
	case "$1" in
	*.sources) deb822_options "$@" ;;
	*) oneline_options "$@" ;;
	esac
}

deb822_options() {
	awk -v uri="${2%/}" -v release="$3" '
	function has(list, word,    n, i, part) {
		n = split(list, part, /[ \t\n]+/)
		for (i = 1; i <= n; i++) {
			sub(/\/$/, "", part[i])
			sub(/:\/\/\//, ":/", part[i]) # as apt names it
			if (part[i] == word) return 1
		}
		return 0
	}
	function flush() {
		if (!done && has(field["uris"], uri) && has(field["suites"], release)) {
			if ("signed-by" in field) print "Signed-By:" field["signed-by"]
			if ("trusted" in field) print "Trusted:" field["trusted"]
			done = 1
		}
		delete field
	}
	/^#/ { next }
	/^[ \t]*$/ { flush(); next }
	/^[ \t]/ { field[name] = field[name] "\n" $0; next }
	{
		name = tolower(substr($0, 1, index($0, ":") - 1))
		field[name] = substr($0, index($0, ":") + 1)
	}
	END { flush() }' "$1"
}

oneline_options() {
	awk -v uri="${2%/}" -v release="$3" '
	$1 == "deb" {
		options = ""
		line = $0
		if (match(line, /\[[^]]*\]/)) {
			options = substr(line, RSTART + 1, RLENGTH - 2)
			line = substr(line, 1, RSTART - 1) substr(line, RSTART + RLENGTH)
		}
		split(line, part, /[ \t]+/)
		sub(/\/$/, "", part[2])
		sub(/:\/\/\//, ":/", part[2]) # as apt names it
		if (part[2] != uri || part[3] != release) next
		n = split(options, option, /[ \t]+/)
		for (i = 1; i <= n; i++) {
			value = substr(option[i], index(option[i], "=") + 1)
			gsub(/,/, " ", value)
			if (option[i] ~ /^signed-by=/) print "Signed-By: " value
			if (option[i] ~ /^trusted=/) print "Trusted: " value
		}
		exit
	}' "$1"
}

# source_stanza URI RELEASE ENTRY [OTHER_RELEASE]: a deb822 stanza for a repository that
# apt already has, or for another release on the same mirror under the same signature.
source_stanza() {
	printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n' "${1%/}" "${4:-$2}"
	source_options "${3%:*}" "$1" "$2"
	echo
}

# main_target: the line of debian_targets for the release itself.
main_target() {
	# shellcheck disable=SC2153 # the caller's
	debian_targets | awk -v name="$CODENAME" '$3 == name { print; exit }'
}

# release_sources CODENAME: deb822 stanzas of a release, its updates and its security
# fixes. The machine's own release comes exactly from apt's sources; another one from the
# same mirrors, under its own name.
release_sources() {
	local wanted=$1
	[ -n "$(main_target)" ] || update_lists
	[ -n "$(main_target)" ] ||
		die "apt has no Debian source for $CODENAME main; add one to build file systems from"
	debian_targets | while read -r uri release codename entry; do
		case "$codename" in
		"$CODENAME" | "$CODENAME-updates" | "$CODENAME-security")
			source_stanza "$uri" "$release" "$entry" "$wanted${codename#"$CODENAME"}" ;;
		esac
	done
}

# mmdebstrap_options: one a line. Proxies and the like: mmdebstrap does not read the
# configuration of the host's apt.
mmdebstrap_options() {
	cat <<-'END'
		--mode=root
		--aptopt=APT::Sandbox::User "root"
		--dpkgopt=path-exclude=/usr/share/doc/*
		--dpkgopt=path-exclude=/usr/share/man/*
		--dpkgopt=path-exclude=/usr/share/info/*
		--dpkgopt=path-exclude=/usr/share/locale/*
	END
	apt-config dump | sed -nE 's/^Acquire::(https?::|Check-|Retries)/--aptopt=&/p'
}
