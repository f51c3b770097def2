//! Compiles the BPF programs.

#[path = "../trace/compile_bpf.rs"]
mod compile_bpf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The kernel's types and the histograms' buckets are the same as there.
    compile_bpf::compile(&["host", "replay"], &["../trace/src/bpf"])
}
