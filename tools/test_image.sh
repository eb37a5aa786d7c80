#!/usr/bin/env bash
# Prints the name of the image that the servers of the scenarios run. Makes it when it is not there: half a minute, 220 MB.
# It is made of Debian packages, so no registry is needed. Its tag is a hash of this file: another recipe is another image.
set -euo pipefail
cd "$(dirname "$0")"
engine="${CONTAINER_ENGINE:-podman}"
recipe="$(sha256sum "$(basename "$0")")"
image="localhost/modelyard-server:${recipe:0:12}"
# Debian 12 as servers have it: systemd, logins, a Python with venv, and the programs that people leave things running in.
# With dbus-user-session a user has a systemd of its own, which `systemctl --user` talks to.
packages=(systemd systemd-sysv libpam-systemd dbus dbus-user-session openssh-server sudo python3 python3-venv procps iproute2
  screen tmux make cron)
# What the real engine's wheels load of the host (molecule/offline).
packages+=(libnuma1)
# What the gateway needs of an engine's environment, in the oldest versions that it is tried with, and one that can take its place.
packages+=(python3-aiohttp python3-httptools python3-uvloop haproxy)

make_image() {
  # llm has no right but those of its groups, which may open cards, and its systemd runs from the boot on, without a login
  # (loginctl enable-linger). The one key that may log in comes when a server starts.
  mmdebstrap --quiet --variant=minbase --include="$(IFS=, && echo "${packages[*]}")" \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='chroot "$1" groupadd --system render' \
    --customize-hook='chroot "$1" useradd --create-home --shell /bin/bash --groups video,render llm' \
    --customize-hook='install -D /dev/null "$1/var/lib/systemd/linger/llm"' \
    --customize-hook='chroot "$1" systemctl --quiet disable haproxy' \
    --customize-hook='echo "AuthorizedKeysFile /etc/ssh/authorized_keys" > "$1/etc/ssh/sshd_config.d/keys.conf"' \
    bookworm "$folder/image.tar" &&
    "$engine" import --change 'CMD ["/sbin/init"]' "$folder/image.tar" "$image"
}

if ! "$engine" image inspect "$image" >/dev/null 2>&1; then
  echo "   making the image $image" >&2
  folder="$(mktemp -d)"
  trap 'rm -rf "$folder"' EXIT
  make_image >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
fi
echo "$image"
