#!/bin/sh
# Stands in for systemctl and for systemd itself below the directory that holds usr/bin/systemctl: units with AllowedCPUs=,
# the drop-ins that set it, and the CPUs of their groups. See systemd.rs.
root=$(dirname "$0")/../..
units=$root/units
while [ "${1#--no-}" != "$1" ]; do shift; done
echo "$*" >>"$root/asked"
[ -e "$root/hangs" ] && exec sleep 600
verb=$1
while [ "$#" -gt 0 ] && [ "$1" != -- ]; do
    [ "$1" = --runtime ] && dir=run
    shift
done
unit=${2-}
property=${3-}

# The value that the drop-ins give to a unit, the administrator's first.
configured() {
    for dropin in "$root"/etc/systemd/system.control "$root"/run/systemd/system.control; do
        if [ -e "$dropin/$1.d/50-AllowedCPUs.conf" ]; then
            sed -n 's/^AllowedCPUs=//p' "$dropin/$1.d/50-AllowedCPUs.conf"
            return
        fi
    done
}

case $verb in
show)
    if [ ! -e "$units/$unit/properties" ]; then
        echo LoadState=not-found
        exit
    fi
    cat "$units/$unit/properties"
    echo "AllowedCPUs=$(tr , ' ' <"$units/$unit/allowed")"
    ;;
set-property)
    if [ ! -e "$units/$unit/properties" ]; then
        echo "Failed to set unit properties on $unit: Unit $unit not found." >&2
        exit 1
    fi
    dropin=$root/${dir-etc}/systemd/system.control/$unit.d
    mkdir -p "$dropin"
    printf '[Service]\n%s\n' "$property" >"$dropin/50-AllowedCPUs.conf"
    value=${property#AllowedCPUs=}
    printf %s "$value" >"$units/$unit/allowed"
    group=$root/cg$(sed -n 's/^ControlGroup=//p' "$units/$unit/properties")
    if [ -n "$value" ]; then
        [ -e "$units/$unit/disabled" ] || printf '%s\n' "$value" >"$group/cpuset.cpus"
    elif [ ! -e "$units/$unit/shared" ]; then
        rm -f "$group/cpuset.cpus"
    fi
    ;;
daemon-reload)
    for properties in "$units"/*/properties; do
        [ -e "$properties" ] || continue
        unit=$(basename "$(dirname "$properties")")
        printf %s "$(configured "$unit")" >"$units/$unit/allowed"
    done
    ;;
*)
    echo "Unknown command verb $verb." >&2
    exit 1
    ;;
esac
