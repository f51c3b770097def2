//! The VMs of this host: processes with KVM's file descriptors.

use std::collections::BTreeSet;
use std::fs;

use gleaner_kernel::Root;
use serde::{Deserialize, Serialize};

/// The program that runs a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vmm {
    /// QEMU, started by hand or by something other than libvirt.
    Qemu,
    /// QEMU, started by libvirt.
    Libvirt,
    /// Firecracker.
    Firecracker,
    /// Cloud Hypervisor.
    CloudHypervisor,
    /// crosvm.
    Crosvm,
    /// Another one.
    Other,
}

impl Vmm {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Qemu => "QEMU",
            Self::Libvirt => "libvirt",
            Self::Firecracker => "Firecracker",
            Self::CloudHypervisor => "Cloud Hypervisor",
            Self::Crosvm => "crosvm",
            Self::Other => "other",
        }
    }
}

/// What a thread of a VMM does, as far as its name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A vCPU, with its number.
    Vcpu(u32),
    /// A device in the kernel (vhost).
    Vhost,
    /// A device in a thread of its own.
    Io,
    /// Anything else, the main loop among it.
    Other,
}

/// A thread of a VMM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmThread {
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// What it does.
    pub role: Role,
}

/// A VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vm {
    /// The VMM's process.
    pub pid: u32,
    /// The name that libvirt or the command line gives it, else `pid-N`.
    pub name: String,
    /// The VMM.
    pub vmm: Vmm,
    /// The numbers of its vCPUs, which are their APIC ids.
    pub vcpus: BTreeSet<u32>,
    /// The VMM's threads.
    pub threads: Vec<VmThread>,
}

impl Vm {
    /// Number of threads with this role.
    pub fn count(&self, role: Role) -> usize {
        self.threads.iter().filter(|thread| thread.role == role).count()
    }
}

/// The VMs of this host, by process. Processes that cannot be read, or end meanwhile, are left out; without root these are
/// those of other users.
pub fn discover(root: &Root) -> Vec<Vm> {
    let Ok(entries) = fs::read_dir(root.path("/proc")) else { return Vec::new() };
    let mut pids: Vec<u32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    let mut vms: Vec<Vm> = pids.into_iter().filter_map(|pid| vm(root, pid)).collect();
    let workers = kernel_workers(root);
    for vm in &mut vms {
        // Before Linux 6.4, vhost's threads are the kernel's, and only named after the process.
        let name = format!("vhost-{}", vm.pid);
        vm.threads.extend(workers.iter().filter(|thread| thread.name == name).cloned());
    }
    vms
}

fn vm(root: &Root, pid: u32) -> Option<Vm> {
    let vcpus = vcpus(root, pid)?;
    let command = fs::read(root.path(format!("/proc/{pid}/cmdline"))).ok()?;
    let words: Vec<String> =
        command.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let comm = root.read(format!("/proc/{pid}/comm")).ok()?;
    let vmm = vmm(&words, &comm);
    let name = name(vmm, &words).unwrap_or_else(|| format!("pid-{pid}"));
    Some(Vm { pid, name, vmm, vcpus, threads: threads(root, pid) })
}

/// The vCPUs by KVM's file descriptors (`virt/kvm/kvm_main.c` names them); `None` if the process has no VM.
fn vcpus(root: &Root, pid: u32) -> Option<BTreeSet<u32>> {
    let mut is_vm = false;
    let mut vcpus = BTreeSet::new();
    for entry in fs::read_dir(root.path(format!("/proc/{pid}/fd"))).ok()?.flatten() {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let Some(kind) = target.to_str().and_then(|target| target.strip_prefix("anon_inode:")) else {
            continue;
        };
        // Brackets around it, or not, by kernel.
        let kind = kind.trim_matches(['[', ']']);
        if kind == "kvm-vm" {
            is_vm = true;
        } else if let Some(number) = kind.strip_prefix("kvm-vcpu:") {
            is_vm = true;
            vcpus.extend(number.parse::<u32>().ok());
        }
    }
    is_vm.then_some(vcpus)
}

fn vmm(words: &[String], comm: &str) -> Vmm {
    // A loader, a wrapper or a script can come before the VMM itself.
    let programs = || words.iter().map(|word| word.rsplit('/').next().unwrap_or(word)).chain([comm]);
    let is = |name: &str| programs().any(|program| program.starts_with(name));
    if is("qemu-system") || is("qemu-kvm") || comm == "kvm" {
        let by_libvirt = words.iter().any(|word| word.contains("/libvirt/"));
        return if by_libvirt { Vmm::Libvirt } else { Vmm::Qemu };
    }
    if is("firecracker") {
        Vmm::Firecracker
    } else if is("cloud-hypervis") {
        Vmm::CloudHypervisor
    } else if is("crosvm") {
        Vmm::Crosvm
    } else {
        Vmm::Other
    }
}

/// The value of a long option, as a word of its own or after `=`.
fn option<'w>(words: &'w [String], option: &str) -> Option<&'w str> {
    words.iter().enumerate().find_map(|(place, word)| {
        if word == option {
            return words.get(place + 1).map(String::as_str);
        }
        word.strip_prefix(option)?.strip_prefix('=')
    })
}

/// The VM's name on the VMM's command line.
fn name(vmm: Vmm, words: &[String]) -> Option<String> {
    let name = match vmm {
        Vmm::Qemu | Vmm::Libvirt => {
            let value = option(words, "-name")?;
            // `-name guest=NAME,debug-threads=on` or `-name NAME`; a comma in the name is doubled.
            let value = value.replace(",,", "\0");
            let first = value.split(',').find_map(|part| part.strip_prefix("guest=")).map(str::to_owned);
            let name = first.unwrap_or_else(|| value.split(',').next().unwrap_or_default().to_owned());
            name.replace('\0', ",")
        }
        Vmm::Firecracker => option(words, "--id")?.to_owned(),
        Vmm::CloudHypervisor => {
            // It gives its VMs no names; the socket of its interface usually has one.
            let socket = option(words, "--api-socket")?.trim_start_matches("path=");
            let file = socket.rsplit('/').next()?;
            file.trim_end_matches(".sock").to_owned()
        }
        Vmm::Crosvm => option(words, "--name")?.to_owned(),
        Vmm::Other => return None,
    };
    (!name.is_empty()).then_some(name)
}

fn threads(root: &Root, pid: u32) -> Vec<VmThread> {
    let Ok(entries) = fs::read_dir(root.path(format!("/proc/{pid}/task"))) else { return Vec::new() };
    let mut threads: Vec<VmThread> = entries
        .flatten()
        .filter_map(|entry| {
            let tid = entry.file_name().to_str()?.parse().ok()?;
            let name = root.read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
            Some(VmThread { tid, role: role(&name), name })
        })
        .collect();
    threads.sort_by_key(|thread| thread.tid);
    threads
}

/// Kernel threads that work for VMs.
fn kernel_workers(root: &Root) -> Vec<VmThread> {
    const KTHREADD: &str = "2";
    let Ok(children) = root.read(format!("/proc/{KTHREADD}/task/{KTHREADD}/children")) else {
        return Vec::new();
    };
    let named = |tid: u32| {
        let name = root.read(format!("/proc/{tid}/comm")).ok()?;
        name.starts_with("vhost-").then(|| VmThread { tid, role: role(&name), name })
    };
    children.split_ascii_whitespace().filter_map(|tid| named(tid.parse().ok()?)).collect()
}

/// By the names that VMMs and the kernel give their threads. QEMU names its vCPUs only with `debug-threads=on`, as
/// libvirt asks for; the tracer knows them in any case.
fn role(name: &str) -> Role {
    // QEMU, Firecracker, Cloud Hypervisor, crosvm.
    let qemu = name.strip_prefix("CPU ").and_then(|rest| rest.strip_suffix("/KVM"));
    let others = ["fc_vcpu ", "crosvm_vcpu", "vcpu"].iter().find_map(|prefix| name.strip_prefix(prefix));
    if let Some(number) = qemu.or(others).and_then(|number| number.parse().ok()) {
        return Role::Vcpu(number);
    }
    if name.starts_with("vhost-") {
        Role::Vhost
    } else if name.starts_with("IO ") || name.starts_with("_disk") || name.starts_with("_net") {
        Role::Io
    } else {
        Role::Other
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn process(root: &Root, pid: u32, command: &[&str], fds: &[&str], threads: &[(u32, &str)]) {
        let dir = root.path(format!("/proc/{pid}"));
        fs::create_dir_all(dir.join("fd")).unwrap();
        fs::write(dir.join("cmdline"), command.join("\0")).unwrap();
        let program = command[0].rsplit('/').next().unwrap();
        fs::write(dir.join("comm"), &program[..program.len().min(15)]).unwrap();
        for (number, target) in fds.iter().enumerate() {
            symlink(target, dir.join(format!("fd/{number}"))).unwrap();
        }
        for (tid, name) in threads {
            let dir = dir.join(format!("task/{tid}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("comm"), name).unwrap();
        }
    }

    #[test]
    fn vms_are_found_by_kvms_descriptors_and_named_by_their_command_lines() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let kvm = ["/dev/kvm", "anon_inode:kvm-vm", "anon_inode:kvm-vcpu:0", "anon_inode:kvm-vcpu:1"];
        process(&root, 7, &["/bin/bash"], &["/dev/null"], &[(7, "bash")]);
        let libvirt = [
            "/usr/bin/qemu-system-x86_64",
            "-name",
            "guest=web,,1,debug-threads=on",
            "-S",
            "file=/var/lib/libvirt/x",
        ];
        process(
            &root,
            30,
            &libvirt,
            &kvm,
            &[
                (30, "qemu-system-x86"),
                (31, "CPU 0/KVM"),
                (32, "CPU 1/KVM"),
                (33, "IO iothread1"),
                (34, "vhost-30"),
            ],
        );
        process(&root, 40, &["/lib/ld.so", "/opt/qemu-system-x86_64", "-name", "db"], &kvm[..3], &[]);
        process(
            &root,
            50,
            &["/usr/bin/firecracker", "--id", "fn-1"],
            &["anon_inode:[kvm-vm]", "anon_inode:[kvm-vcpu:0]"],
            &[(51, "fc_vcpu 0")],
        );
        process(
            &root,
            60,
            &["cloud-hypervisor", "--api-socket", "path=/run/ch/mail.sock"],
            &kvm,
            &[(61, "vcpu1")],
        );
        process(&root, 70, &["/opt/own-vmm"], &kvm, &[]);
        let vms = discover(&root);
        let found: Vec<(u32, &str, Vmm, usize)> =
            vms.iter().map(|vm| (vm.pid, vm.name.as_str(), vm.vmm, vm.vcpus.len())).collect();
        assert_eq!(
            found,
            [
                (30, "web,1", Vmm::Libvirt, 2),
                (40, "db", Vmm::Qemu, 1),
                (50, "fn-1", Vmm::Firecracker, 1),
                (60, "mail", Vmm::CloudHypervisor, 2),
                (70, "pid-70", Vmm::Other, 2),
            ]
        );
        assert_eq!(vms[0].threads[1].role, Role::Vcpu(0));
        assert_eq!((vms[0].count(Role::Io), vms[0].count(Role::Vhost)), (1, 1));
        assert_eq!(vms[2].threads[0].role, Role::Vcpu(0));
        assert_eq!(vms[3].threads[0].role, Role::Vcpu(1));
    }

    #[test]
    fn vhost_threads_of_older_kernels_belong_to_the_process_in_their_name() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        process(&root, 40, &["qemu-system-x86_64"], &["anon_inode:kvm-vm"], &[]);
        fs::create_dir_all(root.path("/proc/2/task/2")).unwrap();
        fs::write(root.path("/proc/2/task/2/children"), "3 44 45 ").unwrap();
        for (tid, name) in [(3, "rcu_gp"), (44, "vhost-40"), (45, "vhost-41")] {
            fs::create_dir_all(root.path(format!("/proc/{tid}"))).unwrap();
            fs::write(root.path(format!("/proc/{tid}/comm")), name).unwrap();
        }
        let vms = discover(&root);
        assert_eq!((vms.len(), vms[0].name.as_str(), vms[0].threads.len()), (1, "pid-40", 1));
        assert_eq!((vms[0].threads[0].tid, vms[0].threads[0].role), (44, Role::Vhost));
    }
}
