#!/usr/bin/env bash
# Runs what README.md tells a stranger to run on a bare Debian 12: a minimal root directory, made from this machine's
# package sources, with a clone of HEAD. Shows packages that tools/setup.sh forgets. Needs root and, from tools/setup.sh
# --with-test, mmdebstrap.
#   tools/test_fresh.sh [--short]
# In order: a bundle's quickstart.sh without any package and as a user without rights (ten steps of training),
# tools/quickstart.sh, tools/test.sh. --short: ten steps there, too, and of the tests those that need most of
# what is outside the build: of two rooms, none of which may be skipped. The compiler cache is this machine's; logs are
# kept in build/fresh_logs.
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
readonly SUITE=bookworm

steps=(--set train.steps=10 --set schedule.warmup_steps=5) training=() tests=()
case "$*" in
  "") ;;
  --short) training=("${steps[@]}") tests=(--room=framework/s3 --room=checkpoint/sharded) ;;
  *) die "unknown arguments '$*'; see the head of tools/test_fresh.sh" ;;
esac
((EUID == 0)) || die "tools/test_fresh.sh mounts and changes root: run it as root"
for program in mmdebstrap git ccache; do
  command -v "$program" >/dev/null || die "$program is missing: run tools/setup.sh --with-test"
done
unshare --mount --pid --fork true 2>/dev/null || die "mounting is not permitted here: in a container, this needs CAP_SYS_ADMIN"

work=$ROOT/build/fresh root=$ROOT/build/fresh/root child=
ccache=$(ccache --get-config cache_dir)
mkdir -p build "$ccache"
exec {lock}>build/fresh.lock
flock --nonblock "$lock" || die "tools/test_fresh.sh is running here already"
clean_up() {
  [[ -z $child ]] || kill -KILL "$child" 2>/dev/null || true
  mkdir -p build/fresh_logs
  cp "$root$ROOT"/build/*.log build/fresh_logs/ 2>/dev/null || true
  rm -rf "$work" || { sleep 2 && rm -rf "$work"; } # a process that was just killed may have made one more file
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# contained COMMAND...: its mounts and processes are seen by nobody else and end with it, or with this script, however
# that ends. So nothing of this machine is ever mounted below what clean_up deletes.
contained() {
  setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child "$@" &
  child=$!
  wait "$child"
  child=
}

# What leads to packages here, and to a package index: of apt, of pip, and the certificates of a proxy that opens TLS.
environment=("HOME=$HOME" "TERM=${TERM:-dumb}" "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" "CCACHE_DIR=$ccache")
carried=(/etc/apt/auth.conf.d /etc/apt/keyrings /usr/share/keyrings /usr/local/share/ca-certificates /etc/ssl/certs/ca-certificates.crt
  /etc/hosts /etc/pip.conf "$HOME/.config/pip" "$HOME/.pip")
while IFS='=' read -r name value; do
  environment+=("$name=$value")
  if [[ $value == /* && -f $value ]]; then carried+=("$value"); fi
done < <(env | grep -iE '^([a-z]+_proxy|PIP_[A-Z_]+|SSL_CERT_FILE|REQUESTS_CA_BUNDLE)=')
mapfile -t carried < <(printf '%s\n' "${carried[@]}" | sort -u | while read -r path; do [[ ! -e $path ]] || echo "$path"; done)
sources=()
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do [[ ! -s $file ]] || sources+=("$file"); done

# in_root FOLDER COMMAND...
in_root() {
  # shellcheck disable=SC2016 # the inner shell's variables
  contained bash -euc '
    root=$1 ccache=$2 folder=$3
    shift 3
    mkdir -p "$root$ccache"
    # A mount point, or nothing below could have mounts of its own: tests of networks, Slurm and full disks have.
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/dev/shm"
    mount --bind "$ccache" "$root$ccache"
    cd "$root$folder"
    chroot "$root" env --ignore-environment --chdir="$folder" "$@"
  ' in_root "$root" "$ccache" "$1" "${environment[@]}" "${@:2}"
}

rm -rf "$work" # of a run that was killed
mkdir -p "$work"

echo "== a bundle"
[[ -s corpus/kjv.txt ]] || tools/setup.sh --with-corpus
tools/bundle.sh --cpu "$work/holdfast-bundle"

echo "== a bare $SUITE"
apt-config dump Acquire >"$work/apt.conf"
contained mmdebstrap --mode=root --variant=minbase --aptopt="$work/apt.conf" \
  --dpkgopt=force-unsafe-io --setup-hook="cp -rL --parents ${carried[*]@Q} \"\$1\"" "$SUITE" "$root" "${sources[@]}"

echo "== the bundle's quickstart.sh, without packages"
cp "$work/holdfast-bundle.tar.gz" "$root/tmp/"
in_root /tmp setpriv --reuid=nobody --regid=nogroup --clear-groups \
  bash -euc 'tar -xf holdfast-bundle.tar.gz && cd holdfast-bundle && ./quickstart.sh "$@"' quickstart "${steps[@]}"

# At the same place as here, so that the compiler cache finds what was compiled here, and the other way round.
git clone --quiet "$ROOT" "$root$ROOT"
echo "== tools/quickstart.sh, of $(git log -1 --format='%h (%s)')"
in_root "$ROOT" tools/quickstart.sh "${training[@]}"

echo "== tools/test.sh"
in_root "$ROOT" tools/test.sh "${tests[@]}"
for_other_hardware='NcclRun|ATunedTable|NativeArithmetic|ArithmeticsHaveDifferentKernelDigests' # GPUs, bf16 instructions
! grep '\*\*\*Skipped' "$root$ROOT/build/release.ctest.log" | grep -vE "$for_other_hardware" ||
  die "these tests were skipped: something they need is missing"
