#!/bin/sh
# Mounts the disk with an overlay in memory, adds what is not on it, and starts systemd there.
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "$module" || echo "lab: cannot load $module"; done </lib/lab/order
mkdir /disk /memory /new
mount -t squashfs -o ro /dev/vda /disk || poweroff -f
mount -t tmpfs memory /memory
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/disk,upperdir=/memory/upper,workdir=/memory/work overlay /new || poweroff -f
cp -a /lab /new/lab
unit=gleaner-lab
grep -qw lab.shell /proc/cmdline && unit=gleaner-lab-shell
mkdir -p /new/etc/systemd/system/multi-user.target.wants
cp "/lab/units/$unit.service" /new/etc/systemd/system/
ln -s "../$unit.service" /new/etc/systemd/system/multi-user.target.wants/
# A login on the console is in the way, and a cache of libraries cannot be made of an unpacked system.
for unit in serial-getty@ttyS0 ldconfig; do ln -s /dev/null /new/etc/systemd/system/$unit.service; done
# The users that packages' scripts would add.
chroot /new systemd-sysusers
umount /proc /sys
mount --move /dev /new/dev
exec switch_root /new /usr/lib/systemd/systemd
