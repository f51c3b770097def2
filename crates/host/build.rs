//! Compiles the BPF programs and generates their Rust skeletons. Needs clang, which `scripts/setup build` installs.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use libbpf_cargo::SkeletonBuilder;

const SOURCES: &str = "src/bpf";
/// Has the kernel's types and the histograms' buckets, which are the same.
const SHARED: &str = "../trace/src/bpf";
/// `NAME` of each `NAME.bpf.c`.
const OBJECTS: &[&str] = &["host", "replay"];
/// In order of preference. Versions before 16 miscompile 64-bit enums.
const COMPILERS: [&str; 2] = ["clang-19", "clang"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-env-changed=CLANG");
    for entry in fs::read_dir(SOURCES)? {
        println!("cargo:rerun-if-changed={}", entry?.path().display());
    }
    for shared in ["kernel_types.h", "hist.bpf.h"] {
        println!("cargo:rerun-if-changed={SHARED}/{shared}");
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let machine = match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => "-D__TARGET_ARCH_x86",
        "aarch64" => "-D__TARGET_ARCH_arm64",
        other => return Err(format!("the BPF programs know no {other}").into()),
    };
    let clang = clang()?;
    for name in OBJECTS {
        SkeletonBuilder::new()
            .source(Path::new(SOURCES).join(format!("{name}.bpf.c")))
            .clang(&clang)
            .clang_args(["-mcpu=v3", "-Wall", "-Werror", "-I", SHARED, machine])
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
