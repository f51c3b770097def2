//! QEMU's command line: a pure function of the machine's description.

use std::path::Path;

use crate::image::Image;
use crate::vm::spec::{Cpus, LINK, VmSpec};
use crate::wire;

/// What executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accelerator {
    /// QEMU itself, with one thread per vCPU.
    Emulated,
    /// KVM, in the nested host.
    Kvm,
}

/// Numbers of the descriptors that QEMU inherits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Files {
    pub(crate) initramfs: i32,
    pub(crate) monitor: i32,
    pub(crate) agent: i32,
    /// An empty disk in memory.
    pub(crate) scratch: Option<i32>,
    /// `None`: the console is this program's own terminal.
    pub(crate) console: Option<i32>,
}

/// QEMU's arguments for this machine.
pub(crate) fn arguments(
    spec: &VmSpec,
    accelerator: Accelerator,
    kernel: &Path,
    disk: Option<&Path>,
    files: Files,
) -> Vec<String> {
    let mut args = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(|&word| word.to_owned()));
    add(&["-name", &spec.name, "-nodefaults", "-no-user-config", "-display", "none"]);
    // A panic reboots at once (`panic=-1`), and QEMU exits on a reboot.
    add(&["-no-reboot"]);
    let (accel, machine, cpu) = machine(accelerator, spec);
    let counted = spec.counted.filter(|_| accelerator == Accelerator::Emulated);
    // By the clock an emulated PAUSE takes so long that a number of them says nothing.
    let pauses = (counted.is_some() && spec.is_host()).then(|| "pause-filter=on".to_owned());
    let without = spec.without.iter().map(|feature| format!("{feature}=off"));
    let cpu: Vec<String> = std::iter::once(cpu.to_owned()).chain(pauses).chain(without).collect();
    add(&["-accel", accel, "-machine", machine, "-cpu", &cpu.join(",")]);
    if let Some(n) = counted {
        add(&["-icount", &format!("shift={n}")]);
    }
    add(&["-m", &format!("{}M", spec.memory_mib), "-smp", &smp(spec.cpus)]);
    if spec.cpus.nodes > 1 {
        for words in numa(spec) {
            add(&[words.0, &words.1]);
        }
    }
    add(&["-kernel", &kernel.to_string_lossy()]);
    add(&["-initrd", &format!("/proc/self/fd/{}", files.initramfs)]);
    add(&["-append", &command_line(spec, accelerator)]);
    let bus = if accelerator == Accelerator::Kvm { "device" } else { "pci" };
    if let Some(disk) = disk {
        add(&["-drive", &format!("if=none,id=disk,format=raw,readonly=on,file={}", disk.display())]);
        add(&["-device", &format!("virtio-blk-{bus},drive=disk")]);
    }
    if let Some(scratch) = files.scratch {
        add(&["-drive", &format!("if=none,id=scratch,format=raw,file=/proc/self/fd/{scratch}")]);
        add(&["-device", &format!("virtio-blk-{bus},drive=scratch")]);
    }
    if spec.linked {
        add(&["-netdev", &format!("tap,id=link,ifname={LINK},script=no,downscript=no")]);
        add(&["-device", &format!("virtio-net-{bus},netdev=link")]);
    }
    add(&["-chardev", &format!("socket,id=agent,fd={}", files.agent)]);
    add(&["-device", &format!("virtio-serial-{bus}")]);
    add(&["-device", &format!("virtserialport,chardev=agent,name={}", wire::PORT)]);
    add(&["-chardev", &format!("socket,id=monitor,fd={}", files.monitor)]);
    add(&["-mon", "chardev=monitor,mode=control"]);
    match files.console {
        Some(fd) => add(&["-chardev", &format!("socket,id=console,fd={fd}")]),
        None => add(&["-chardev", "stdio,id=console,signal=off"]),
    }
    add(&["-serial", "chardev:console"]);
    args
}

/// Accelerator, machine type and CPU model.
fn machine(accelerator: Accelerator, spec: &VmSpec) -> (&'static str, &'static str, &'static str) {
    let emulated = if spec.in_turn { "tcg,thread=single" } else { "tcg,thread=multi" };
    match accelerator {
        // Without a real-time clock Linux waits for one, for a second at boot, and computes meanwhile.
        Accelerator::Kvm => ("kvm", "microvm,pit=off,pic=off,rtc=on", "host"),
        // The emulator's other models have vector state that the nested host's kernel cannot set up for its guests.
        Accelerator::Emulated if spec.is_host() => (emulated, "pc", "qemu64,svm=on,npt=on,nrip-save=on"),
        // On AMD models Linux 6.1 needs an extension to find siblings, which is not emulated.
        Accelerator::Emulated if spec.cpus.threads > 1 => (emulated, "pc", "Nehalem"),
        // Boots faster than `max`.
        Accelerator::Emulated => (emulated, "pc", "EPYC"),
    }
}

fn smp(cpus: Cpus) -> String {
    let Cpus { sockets, cores, threads, .. } = cpus;
    format!("{},sockets={sockets},cores={cores},threads={threads}", cpus.count())
}

/// One NUMA node after another, with equal parts of memory and vCPUs.
fn numa(spec: &VmSpec) -> Vec<(&'static str, String)> {
    let nodes = spec.cpus.nodes;
    let (cpus, memory) = (spec.cpus.count() / nodes, spec.memory_mib / nodes);
    let node = |n: u32| {
        // The last node gets the remainder.
        let memory = if n + 1 == nodes { spec.memory_mib - memory * (nodes - 1) } else { memory };
        [
            ("-object", format!("memory-backend-ram,id=node{n},size={memory}M")),
            ("-numa", format!("node,nodeid={n},cpus={}-{},memdev=node{n}", n * cpus, (n + 1) * cpus - 1)),
        ]
    };
    (0..nodes).flat_map(node).collect()
}

fn command_line(spec: &VmSpec, accelerator: Accelerator) -> String {
    let mut words = match accelerator {
        // Randomising the kernel's address takes a third of a second at boot.
        Accelerator::Emulated => vec!["nokaslr"],
        // A microvm has no keyboard controller that could reset it.
        Accelerator::Kvm => vec!["reboot=t"],
    };
    words.extend(["console=ttyS0", "panic=-1", "oops=panic", "quiet", "loglevel=4"]);
    if spec.image == Image::Systemd {
        // Rebuilding the library and hardware caches takes a minute under emulation, and nothing needs them.
        words.extend(["systemd.show_status=false", "systemd.condition_needs_update=false"]);
    }
    words.extend(spec.cmdline.iter().map(String::as_str));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;

    fn args(spec: &VmSpec, accelerator: Accelerator) -> String {
        let files = Files { initramfs: 5, monitor: 6, agent: 7, scratch: Some(9), console: Some(8) };
        arguments(spec, accelerator, Path::new("/k"), Some(Path::new("/d")), files).join(" ")
    }

    #[test]
    fn an_emulated_guest_is_on_pci_with_a_thread_for_each_vcpu() {
        let spec = VmSpec::new("a", Image::Tiny, Kernel::V7, Cpus::smt(2)).cmdline(&["preempt=lazy"]);
        let args = args(&spec, Accelerator::Emulated);
        for part in [
            "-accel tcg,thread=multi -machine pc -cpu Nehalem",
            "-smp 4,sockets=1,cores=2,threads=2",
            "-initrd /proc/self/fd/5",
            "virtio-blk-pci,drive=disk",
            "file=/proc/self/fd/9 -device virtio-blk-pci,drive=scratch",
            "socket,id=agent,fd=7",
            "panic=-1 oops=panic quiet loglevel=4 preempt=lazy",
            "-no-reboot",
        ] {
            assert!(args.contains(part), "{part}: {args}");
        }
        assert!(!args.contains("-numa"), "{args}");
    }

    #[test]
    fn the_vcpus_of_one_whose_kernel_is_patched_are_emulated_in_turn() {
        let spec = VmSpec::new("a", Image::Tiny, Kernel::V7, Cpus::flat(2)).in_turn();
        assert!(args(&spec, Accelerator::Emulated).contains("-accel tcg,thread=single -machine pc"));
        assert!(args(&spec, Accelerator::Kvm).contains("-accel kvm"));
        assert!(!args(&spec, Accelerator::Emulated).contains("-icount"));
    }

    #[test]
    fn time_is_counted_in_instructions_where_all_vcpus_are_in_turn() {
        let args =
            args(&VmSpec::new("a", Image::Host, Kernel::V7, Cpus::flat(2)).counted(3), Accelerator::Emulated);
        assert!(args.contains("-accel tcg,thread=single") && args.contains("-icount shift=3 -m"), "{args}");
    }

    #[test]
    fn a_kvm_host_with_systemd_has_svm() {
        let spec = VmSpec::new("a", Image::Systemd, Kernel::V7, Cpus::flat(2));
        assert!(args(&spec, Accelerator::Emulated).contains("-cpu EPYC -m 1152M"));
        let args = args(&spec.hosting(&[Kernel::V7]), Accelerator::Emulated);
        assert!(args.contains("-cpu qemu64,svm=on,npt=on,nrip-save=on -m 4096M"), "{args}");
    }

    #[test]
    fn nodes_share_memory_and_vcpus() {
        let mut spec = VmSpec::new("a", Image::Tiny, Kernel::V7, Cpus::numa(2, 2));
        spec.memory_mib = 601;
        let args = args(&spec, Accelerator::Emulated);
        assert!(args.contains("id=node0,size=300M -numa node,nodeid=0,cpus=0-1,memdev=node0"), "{args}");
        assert!(args.contains("id=node1,size=301M -numa node,nodeid=1,cpus=2-3,memdev=node1"), "{args}");
    }

    #[test]
    fn a_nested_guest_is_a_microvm_without_pci() {
        let spec = VmSpec::new("a", Image::Tiny, Kernel::V7, Cpus::flat(2)).without("kvm-pv-tlb-flush");
        let args = args(&spec, Accelerator::Kvm);
        let machine = "-accel kvm -machine microvm,pit=off,pic=off,rtc=on -cpu host,kvm-pv-tlb-flush=off -m";
        assert!(args.contains(machine), "{args}");
        assert!(
            args.contains("virtio-serial-device") && !args.contains("pci") && !args.contains("net"),
            "{args}"
        );
    }

    #[test]
    fn a_linked_guest_has_a_network_device_and_knows_its_name() {
        let args =
            args(&VmSpec::new("a", Image::Systemd, Kernel::V7, Cpus::flat(2)).linked(), Accelerator::Kvm);
        let device =
            "-netdev tap,id=link,ifname=link0,script=no,downscript=no -device virtio-net-device,netdev=link";
        assert!(args.contains(device) && args.contains("net.ifnames=0"), "{args}");
    }
}
