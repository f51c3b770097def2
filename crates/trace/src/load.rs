//! Loading what this kernel accepts. Each program is optional; what is left out is told with its reason.

use std::mem::MaybeUninit;
use std::path::Path;

use libbpf_rs::btf::types::{Func, Typedef};
use libbpf_rs::btf::{Btf, BtfType};
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, Object, OpenObject};
use nix::errno::Errno;

use crate::part::{Event, PROGRAMS, Part, Parts, Program};
use crate::scope::Resolved;
use crate::skeleton::{TraceSkel, TraceSkelBuilder};
use crate::unavailable::{NotAvailable, Why, text};

const BTF: &str = "/sys/kernel/btf/vmlinux";
/// A kernel's CPU masks are compared word by word, and there are at most so many.
const MAX_CPU_WORDS: u32 = 16;

/// What could be loaded and attached.
pub(crate) struct Loaded {
    pub(crate) skel: TraceSkel<'static>,
    /// The programs that are attached.
    pub(crate) attached: Vec<(&'static Program, Link)>,
    pub(crate) missing: Vec<NotAvailable>,
}

/// Loads and attaches the programs of `parts`.
///
/// # Errors
/// The wake-ups cannot be traced, and with them nothing.
pub(crate) fn load(parts: &Parts, scope: &Resolved) -> Result<Loaded, NotAvailable> {
    let mut missing = Vec::new();
    let mut wanted = wanted(parts, &mut missing)?;
    // All at once is the usual case. Where that fails the culprits are found one by one.
    let skel = if let Ok(skel) = open_and_load(&wanted, scope) {
        skel
    } else {
        wanted = accepted(&wanted, scope, &mut missing)?;
        open_and_load(&wanted, scope).map_err(|e| refused(&PROGRAMS[0], &e))?
    };
    let mut attached: Vec<(&'static Program, Link)> = Vec::new();
    for program in &wanted {
        if matches!(program.event, Event::Iterator | Event::Call) {
            continue;
        }
        match attach(&skel, program) {
            Ok(link) => attached.push((program, link)),
            Err(error) if is_essential(program) => return Err(refused(program, &error)),
            Err(error) => missing.push(refused(program, &error)),
        }
    }
    missing.dedup_by(|a, b| a.what == b.what);
    // What another program stands in for is not missing.
    let replaced =
        |m: &NotAvailable| attached.iter().any(|(p, _)| p.instead_of.is_some() && what(p) == m.what);
    missing.retain(|m| !replaced(m));
    Ok(Loaded { skel, attached, missing })
}

/// The kernel's program called `name`.
pub(crate) fn program<'a>(object: &'a Object, name: &str) -> Option<libbpf_rs::ProgramMut<'a>> {
    object.progs_mut().find(|program| program.name() == name)
}

/// Without these there are no wake-ups.
fn is_essential(program: &Program) -> bool {
    program.part == Part::Wakes && program.gives.is_none()
}

/// The programs whose events this kernel has.
fn wanted(parts: &Parts, missing: &mut Vec<NotAvailable>) -> Result<Vec<&'static Program>, NotAvailable> {
    let no_btf = || NotAvailable::new(Part::Wakes.about(), Why::NoBtf { path: BTF.to_owned() });
    if !Path::new(BTF).exists() {
        return Err(no_btf());
    }
    let btf = Btf::from_vmlinux().map_err(|_| no_btf())?;
    let mut found = Vec::new();
    for program in PROGRAMS.iter().filter(|program| parts.contains(program.part)) {
        if has(&btf, program.event) {
            found.push(program);
            continue;
        }
        let absence = NotAvailable::new(what(program), Why::NoEvent { event: program.event.to_string() });
        if is_essential(program) {
            return Err(absence);
        }
        missing.push(absence);
    }
    Ok(found)
}

fn has(btf: &Btf<'_>, event: Event) -> bool {
    fn exists<'btf, T: TryFrom<BtfType<'btf>>>(btf: &'btf Btf<'btf>, name: &str) -> bool {
        btf.type_by_name::<T>(name).is_some()
    }
    let name = event.btf_type();
    match event {
        Event::Tracepoint(_) => exists::<Typedef<'_>>(btf, &name),
        Event::Function(_) => exists::<Func<'_>>(btf, &name),
        Event::Iterator | Event::Call => true,
    }
}

/// What is missing without a program, in words.
fn what(program: &Program) -> &'static str {
    program.gives.unwrap_or(program.part.about())
}

fn refused(program: &Program, error: &libbpf_rs::Error) -> NotAvailable {
    let root = is_root();
    NotAvailable::new(what(program), Why::from_load(program.name, error.kind(), text(error), root))
}

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// The programs that the kernel accepts, each tried alone.
fn accepted(
    wanted: &[&'static Program],
    scope: &Resolved,
    missing: &mut Vec<NotAvailable>,
) -> Result<Vec<&'static Program>, NotAvailable> {
    let mut accepted = Vec::new();
    for program in wanted {
        match open_and_load(&[program], scope) {
            Ok(_) => accepted.push(*program),
            Err(error) if is_essential(program) => return Err(refused(program, &error)),
            Err(error) => missing.push(refused(program, &error)),
        }
    }
    let has = |name: &str| accepted.iter().any(|program| program.name == name);
    let replaced: Vec<&str> =
        accepted.iter().filter(|p| p.instead_of.is_some_and(&has)).map(|p| p.name).collect();
    accepted.retain(|program| !replaced.contains(&program.name));
    Ok(accepted)
}

fn open_and_load(programs: &[&'static Program], scope: &Resolved) -> libbpf_rs::Result<TraceSkel<'static>> {
    // The skeleton refers to this for as long as it lives; the object itself is freed with the skeleton, and what
    // stays are a few bytes for each start.
    let place: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = TraceSkelBuilder::default().open(place)?;
    let replaced = |name: &str| programs.iter().any(|p| p.name == name);
    for mut program in open.open_object_mut().progs_mut() {
        let chosen = programs.iter().any(|p| program.name() == p.name && !p.instead_of.is_some_and(replaced));
        program.set_autoload(chosen);
    }
    if let Some(data) = open.maps.rodata_data.as_deref_mut() {
        data.scope_kind = scope.kind as u32;
        data.scope_pid = scope.pid;
        data.scope_cgroup = scope.cgroup;
        data.scope_hierarchy = scope.hierarchy as u32;
        let cpus = libbpf_rs::num_possible_cpus().unwrap_or(1);
        data.cpu_words = u32::try_from(cpus.div_ceil(64)).unwrap_or(MAX_CPU_WORDS).min(MAX_CPU_WORDS);
    }
    open.load()
}

fn attach(skel: &TraceSkel<'static>, chosen: &Program) -> libbpf_rs::Result<Link> {
    use libbpf_rs::skel::Skel as _;
    program(skel.object(), chosen.name)
        .ok_or_else(|| libbpf_rs::Error::from_raw_os_error(Errno::ENOENT as i32))?
        .attach()
}
