//! Compiles the BPF programs.

#[path = "../trace/compile_bpf.rs"]
mod compile_bpf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The kernel's and KVM's types, and the decisions.
    compile_bpf::compile(&["scx_gleaner"], &["../trace/src/bpf", "../host/src/bpf", "../coordination/src"])
}
