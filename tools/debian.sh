#!/bin/sh
# Installs the named Debian packages that are missing, where there is apt-get and this user may use it.
missing=""
for package in "$@"; do
    case $package in
        mosquitto-clients) command=mosquitto_pub ;;
        nodejs) command=node ;;
        iproute2) command=ip ;;
        default-jre-headless) command=java ;;
        *) command=$package ;;
    esac
    [ "$package" = zookeeper ] && [ -e /usr/share/java/zookeeper.jar ] && continue  # a library without a command
    PATH="$PATH:/usr/sbin:/sbin" command -v "$command" >/dev/null 2>&1 || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
    echo "missing, and not installed because this is not root on Debian:$missing"
    exit 0
fi
step() { sh "$(dirname "$0")/step.sh" "$@"; }
step "Updating the list of Debian packages" apt-get update -qq
step "Installing$missing" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
