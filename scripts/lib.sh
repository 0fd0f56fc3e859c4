# shellcheck shell=bash
# What the scripts here share. Sourced, never run.

CLOISTER_USER=cloister
# shellcheck disable=SC2034 # used by those that source this
CACHE=/var/cache/cloister

# Messages go to stderr: stdout carries results only (a path, say).
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "error: $*"; exit 1; }

# become_root ARG...: runs the calling script again through sudo unless we are root.
become_root() {
	[ "$(id -u)" -ne 0 ] || return 0
	command -v sudo >/dev/null ||
		die "needs root and there is no sudo; run it as root (su -c 'make ...')"
	exec sudo --preserve-env=CI,CLOISTER_CONFINE,CLOISTER_PATIENCE,CLOISTER_PORT,CLOISTER_VAR \
		-- "$(realpath "$0")" "$@"
}

# The prefix that makes a command the service user's, with no way back to more power.
AS_SERVICE=(setpriv --reuid "$CLOISTER_USER" --regid "$CLOISTER_USER" --clear-groups
	--no-new-privs --inh-caps=-all --ambient-caps=-all --bounding-set=-all --)
as_service() { "${AS_SERVICE[@]}" "$@"; }

# digest LENGTH: the first LENGTH hex digits of the SHA-256 of stdin.
digest() { sha256sum | cut -c "1-$1"; }

# trusted_path PATH [OWNER]: true when the service user may rely on every directory from /
# to PATH: owned by root or OWNER (the service user), writable by nobody else (a sticky
# directory of root, such as /tmp, will do), and searchable by the service user.
trusted_path() {
	local dir=$1 allowed=${2:-$CLOISTER_USER} owner mode
	while :; do
		read -r owner mode < <(stat -c '%U %a' -- "$dir") || return 1
		[ "$owner" = root ] || [ "$owner" = "$allowed" ] || return 1
		if (( 0$mode & 022 )) && ! { [ "$owner" = root ] && (( 0$mode & 01000 )); }; then
			return 1
		fi
		[ "$dir" = / ] && break
		dir=$(dirname -- "$dir")
	done
	as_service test -x "$1"
}
