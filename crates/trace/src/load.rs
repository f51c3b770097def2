//! Loads the programs that this kernel accepts. Each is optional; missing ones are reported with the reason.

use std::io;
use std::mem::MaybeUninit;

use gleaner_kernel::Root;
use libbpf_rs::btf::types::{Func, Typedef};
use libbpf_rs::btf::{Btf, BtfType};
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Object, OpenObject};

use crate::attach::{Attachment, Probe};
use crate::part::{Event, PROGRAMS, Part, Parts, Program};
use crate::scope::{Resolved, set_scope};
use crate::skeleton::{TraceSkel, TraceSkelBuilder};
use crate::unavailable::{NotAvailable, Reason, Rights, from_load, text};

pub(crate) const BTF: &str = "/sys/kernel/btf/vmlinux";

pub(crate) struct Loaded {
    pub(crate) skel: TraceSkel<'static>,
    /// The attached programs.
    pub(crate) probes: Vec<Probe>,
    /// The empty program, if it could be loaded.
    pub(crate) empty: Option<Attachment>,
    pub(crate) missing: Vec<NotAvailable>,
}

/// Loads and attaches the programs of `parts`.
///
/// # Errors
/// Wake-ups cannot be traced, on which everything else depends.
pub(crate) fn load(root: &Root, parts: &Parts, scope: &Resolved) -> Result<Loaded, NotAvailable> {
    let mut missing = Vec::new();
    let mut wanted = wanted(root, parts, &mut missing)?;
    // Usually all programs load at once. If not, find those that fail one by one.
    let skel = if let Ok(skel) = open_and_load(&wanted, scope) {
        skel
    } else {
        wanted = accepted(&wanted, scope, &mut missing)?;
        open_and_load(&wanted, scope).map_err(|e| refused(&PROGRAMS[0], &e))?
    };
    let (mut probes, mut empty): (Vec<Probe>, _) = (Vec::new(), None);
    for program in &wanted {
        let probe = match program.event {
            Event::Iterator => continue,
            Event::Call(_) => {
                empty = attachment(&skel, program).ok();
                continue;
            }
            Event::Tracepoint(_) | Event::Function(_) => {
                attachment(&skel, program).and_then(|mut attachment| {
                    attachment.attach()?;
                    Ok(Probe { program, attachment })
                })
            }
        };
        match probe {
            Ok(probe) => probes.push(probe),
            Err(error) if is_essential(program) => return Err(refused(program, &error.into())),
            Err(error) => missing.push(refused(program, &error.into())),
        }
    }
    missing.dedup_by(|a, b| a.what == b.what);
    // If another program stands in for it, it is not missing.
    let stands_in = |m: &NotAvailable| {
        probes.iter().any(|p| p.program.instead_of.is_some() && p.program.what() == m.what)
    };
    missing.retain(|m| !stands_in(m));
    Ok(Loaded { skel, probes, empty, missing })
}

fn attachment(skel: &TraceSkel<'static>, chosen: &Program) -> io::Result<Attachment> {
    use libbpf_rs::skel::Skel as _;
    let loaded =
        program(skel.object(), chosen.name).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    Attachment::new(&loaded)
}

/// The loaded program called `name`.
pub(crate) fn program<'a>(object: &'a Object, name: &str) -> Option<libbpf_rs::ProgramMut<'a>> {
    object.progs_mut().find(|program| program.name() == name)
}

/// Whether wake-ups depend on it.
fn is_essential(program: &Program) -> bool {
    program.part == Part::Wakes && program.gives.is_none()
}

/// The programs whose events this kernel has.
fn wanted(
    root: &Root,
    parts: &Parts,
    missing: &mut Vec<NotAvailable>,
) -> Result<Vec<&'static Program>, NotAvailable> {
    let path = root.path(BTF);
    let no_btf = |_| {
        NotAvailable::new(Part::Wakes.about(), Reason::NoBtf { path: path.to_string_lossy().into_owned() })
    };
    let btf = Btf::from_path(&path).map_err(no_btf)?;
    let mut found = Vec::new();
    for program in PROGRAMS.iter().filter(|program| parts.contains(program.part)) {
        if has(&btf, program.event) {
            found.push(program);
            continue;
        }
        let absence = NotAvailable::new(program.what(), Reason::NoEvent { event: program.event.to_string() });
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
        Event::Tracepoint(_) | Event::Call(_) => exists::<Typedef<'_>>(btf, &name),
        Event::Function(_) => exists::<Func<'_>>(btf, &name),
        Event::Iterator => true,
    }
}

fn refused(program: &Program, error: &libbpf_rs::Error) -> NotAvailable {
    let why = from_load(program.name, error.kind(), text(error), Rights::now());
    NotAvailable::new(program.what(), why)
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

/// Where a skeleton puts its object; it borrows the place for as long as it lives. The object is freed with the skeleton; the
/// few bytes of the place are leaked.
pub fn object_place() -> &'static mut MaybeUninit<OpenObject> {
    Box::leak(Box::new(MaybeUninit::uninit()))
}

fn open_and_load(programs: &[&'static Program], scope: &Resolved) -> libbpf_rs::Result<TraceSkel<'static>> {
    let mut open = TraceSkelBuilder::default().open(object_place())?;
    let replaced = |name: &str| programs.iter().any(|p| p.name == name);
    for mut program in open.open_object_mut().progs_mut() {
        let chosen = programs.iter().any(|p| program.name() == p.name && !p.instead_of.is_some_and(replaced));
        program.set_autoload(chosen);
    }
    set_scope!(open, scope);
    if let Some(data) = open.maps.rodata_data.as_deref_mut() {
        let cpus = libbpf_rs::num_possible_cpus().unwrap_or(1);
        data.idle_followed = programs.iter().any(|p| p.name == "on_idle");
        data.cpu_words = u32::try_from(cpus.div_ceil(64)).unwrap_or(u32::MAX);
    }
    open.load()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn without_the_kernels_types_there_is_nothing_and_the_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let absence = wanted(&root, &Parts::all(), &mut Vec::new()).unwrap_err();
        let Reason::NoBtf { path } = &absence.why else { panic!("{absence}") };
        assert!(path.ends_with(BTF), "{path}");
        // A file that is not BTF counts as missing.
        fs::create_dir_all(root.path("/sys/kernel/btf")).unwrap();
        fs::write(root.path(BTF), "nothing of the kind").unwrap();
        let absence = wanted(&root, &Parts::all(), &mut Vec::new()).unwrap_err();
        assert!(matches!(absence.why, Reason::NoBtf { .. }), "{absence}");
    }
}
