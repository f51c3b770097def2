//! The command line.

use std::io::Write as _;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use gleaner_lab::cache::Cache;
use gleaner_lab::image;
use gleaner_lab::{Cpus, Exit, Image, Kernel, Lab, Step, VmSpec, agent, claims, table};
use gleaner_print::{Usage, out, outln, say, write_bytes};

/// Virtual machines in which Gleaner is proven
///
/// Images are made of Debian's packages, without installing them, and kept in cache/lab (or `GLEANER_LAB_CACHE`).
/// Machines run under QEMU's own emulation, so that they need no KVM. `scripts/setup lab` installs what is needed.
#[derive(Debug, Parser)]
#[command(name = "gleaner-lab", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make the images that are not in the cache
    Images(Images),
    /// Boot a machine with Gleaner in it and give a shell; `exit` turns it off
    Shell(Machine),
    /// Run a command in a new machine; its output and exit status pass through
    Run(Run),
    /// Prove the claims and print the table; status 1 if one does not hold
    Claims(Claims),
    /// Serve the harness in a guest
    #[command(hide = true)]
    Agent,
    /// In a guest: critical sections that its host sees
    #[command(hide = true)]
    Sections,
}

#[derive(Debug, Args)]
struct Images {
    /// Only this image
    #[arg(long)]
    image: Option<Image>,
    /// Only this kernel
    #[arg(long)]
    kernel: Option<Kernel>,
    /// Throw away what is in the cache and make everything from the newest packages
    #[arg(long)]
    refresh: bool,
}

/// A machine, on the command line.
#[derive(Debug, Args)]
struct Machine {
    /// What is in it
    #[arg(long, default_value = "tiny")]
    image: Image,
    /// How many vCPUs: cores of one socket
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    vcpus: u32,
    /// Its kernel; a nested host has Linux 7
    #[arg(long)]
    kernel: Option<Kernel>,
    /// A description as JSON (lab/README.md) in place of the other options
    #[arg(long, conflicts_with_all = ["image", "vcpus", "kernel"])]
    spec: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Run {
    #[command(flatten)]
    machine: Machine,
    /// Seconds after which the command is killed
    #[arg(long, default_value_t = 60)]
    timeout: u64,
    /// Print how long the boot took, on stderr
    #[arg(long)]
    boot_time: bool,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

#[derive(Debug, Args)]
struct Claims {
    /// Only this claim; can be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only the claims of the five minutes in `make test`
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    form: Form,
    /// Say what there is, and prove nothing
    #[arg(long)]
    list: bool,
    /// Print the outcomes as JSON
    #[arg(long)]
    json: bool,
    /// Write the page of all claims into this file, and the outcomes into a JSON file beside it, which has those of the claims
    /// that are not proven now
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// How claims are proven.
#[derive(Debug, Args)]
struct Form {
    /// Repeat measurements a third as often: says what is broken, not how much
    #[arg(long)]
    short: bool,
    /// Prove so many at once of those whose time is counted in instructions, before the others, which are alone
    #[arg(long, value_name = "N", default_value_t = NonZero::<usize>::MIN)]
    jobs: NonZero<usize>,
}

impl Machine {
    fn spec(&self) -> anyhow::Result<VmSpec> {
        if let Some(path) = &self.spec {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            return serde_json::from_str(&text)
                .with_context(|| format!("{} describes no machine", path.display()));
        }
        let default = if self.image == Image::Host { Kernel::V7 } else { Kernel::V6_12 };
        let kernel = self.kernel.unwrap_or(default);
        Ok(VmSpec::new("command-line", self.image, kernel, Cpus::flat(self.vcpus)))
    }
}

pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Images(args) => images(&args),
        Command::Shell(machine) => {
            Lab::open()?.shell(machine.spec()?)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Run(args) => command(&args),
        Command::Claims(args) => prove(&args),
        Command::Sections => {
            gleaner_lab::sections::run()?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Agent => {
            agent::serve()?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn prove(args: &Claims) -> anyhow::Result<ExitCode> {
    let chosen = claims::only(&args.only, args.quick).map_err(|error| Usage(error.to_string()))?;
    if args.list {
        for claim in &chosen {
            outln!("{}\t{}", claim.name, claim.says)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let lab = Lab::open()?;
    let lab = if args.form.short { lab.short() } else { lab };
    let outcomes = claims::run(&lab, &chosen, args.form.jobs);
    if let Some(path) = &args.markdown {
        let page = table::markdown(&claims::kept::update(&path.with_extension("json"), &outcomes)?);
        std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        outln!("{}", serde_json::to_string(&outcomes)?)?;
    } else {
        out!("{}", table::text(&outcomes))?;
    }
    Ok(if outcomes.iter().all(claims::Outcome::holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn images(args: &Images) -> anyhow::Result<ExitCode> {
    let cache = Cache::open()?;
    let kernels = args.kernel.map_or(Kernel::ALL.to_vec(), |kernel| vec![kernel]);
    let images = args.image.map_or(vec![Image::Tiny, Image::Systemd, Image::Host], |image| vec![image]);
    if args.refresh {
        for name in image::artefacts(&images, &kernels) {
            cache.remove(&name)?;
        }
    }
    for image in &images {
        for kernel in &kernels {
            image::prepare(&cache, *image, *kernel)?;
        }
    }
    for kernel in kernels {
        outln!("kernel {kernel}: {}", kernel.open(&cache)?.release)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn command(args: &Run) -> anyhow::Result<ExitCode> {
    let guest = Lab::open()?.boot(args.machine.spec()?)?;
    if args.boot_time {
        say!("gleaner-lab: booted in {:.1} s", guest.boot_time().as_secs_f64());
    }
    let words: Vec<&str> = args.command.iter().map(String::as_str).collect();
    let output = guest.run(Step::new(&words).timeout(Duration::from_secs(args.timeout)))?;
    let printed = write_bytes(&output.stdout);
    // The command's stderr, which need not be text. If ours is closed, that is not an error.
    let _ = std::io::stderr().write_all(&output.stderr);
    let code = match output.exit {
        Exit::Code(code) => u8::try_from(code).unwrap_or(1),
        Exit::Signal(signal) => u8::try_from(128 + signal).unwrap_or(1),
        Exit::TimedOut => anyhow::bail!("the command did not end within {} s and was killed", args.timeout),
    };
    guest.power_off()?;
    printed?;
    Ok(ExitCode::from(code))
}
