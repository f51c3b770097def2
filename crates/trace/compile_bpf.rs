//! Compiles BPF programs and generates their Rust skeletons, for build scripts. Needs clang, which `scripts/setup build`
//! installs.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use libbpf_cargo::SkeletonBuilder;

const SOURCES: &str = "src/bpf";
/// In order of preference. Versions before 16 miscompile 64-bit enums.
const COMPILERS: [&str; 2] = ["clang-19", "clang"];

/// Makes `NAME.skel.rs` of `src/bpf/NAME.bpf.c` for each of the `objects`. Headers are found there and in the directories
/// of `shared`.
pub(crate) fn compile(objects: &[&str], shared: &[&str]) -> Result<(), Box<dyn Error>> {
    for dir in [SOURCES].iter().chain(shared) {
        for entry in fs::read_dir(dir)? {
            println!("cargo:rerun-if-changed={}", entry?.path().display());
        }
    }
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let machine = match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => "-D__TARGET_ARCH_x86",
        "aarch64" => "-D__TARGET_ARCH_arm64",
        other => return Err(format!("the BPF programs know no {other}: add its system calls").into()),
    };
    let includes = shared.iter().flat_map(|dir| ["-I", dir]);
    let arguments: Vec<_> = ["-mcpu=v3", "-Wall", "-Werror", machine].into_iter().chain(includes).collect();
    let clang = clang()?;
    for name in objects {
        SkeletonBuilder::new()
            .source(Path::new(SOURCES).join(format!("{name}.bpf.c")))
            .clang(&clang)
            .clang_args(&arguments)
            .build_and_generate(out.join(format!("{name}.skel.rs")))?;
    }
    Ok(())
}

fn clang() -> Result<String, Box<dyn Error>> {
    if let Ok(chosen) = env::var("CLANG") {
        return Ok(chosen);
    }
    let runs = |name: &&&str| {
        let mut command = Command::new(name);
        command.arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let found = COMPILERS.iter().find(runs);
    found.map(ToString::to_string).ok_or_else(|| {
        format!("no clang here (tried {}): run scripts/setup build, or set CLANG", COMPILERS.join(", "))
            .into()
    })
}
