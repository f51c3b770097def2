//! Compiles the decisions for this machine.

fn main() {
    println!("cargo:rerun-if-changed=src/logic.h");
    println!("cargo:rerun-if-changed=src/native.c");
    cc::Build::new().file("src/native.c").warnings(true).extra_warnings(true).compile("gleaner_coordination");
}
