//! `gleaner sim reproduce`.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Instant;

use gleaner_sim::reproduce::{Basis, Number, Paper, Reproduction};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which paper
    #[arg(long, value_enum, default_value = "atc14")]
    paper: PaperName,
    /// Print the numbers as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum PaperName {
    /// Gleaner (USENIX ATC 2014)
    Atc14,
    /// Demand-based coordinated scheduling (ASPLOS 2013)
    Asplos13,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let paper = match args.paper {
        PaperName::Atc14 => Paper::Atc14,
        PaperName::Asplos13 => Paper::Asplos13,
    };
    let shown = std::io::stderr().is_terminal();
    let start = Instant::now();
    let reproduction = paper.reproduce(|what| {
        if shown {
            eprintln!("{:5.1} s  {what}", start.elapsed().as_secs_f64());
        }
    });
    if args.json {
        println!("{}", serde_json::to_string_pretty(&reproduction)?);
    } else {
        print!("{}", text(&reproduction));
    }
    Ok(ExitCode::SUCCESS)
}

fn text(r: &Reproduction) -> String {
    // Writing to a string cannot fail, here and below.
    let mut out = format!("{:<62}{:>10}{:>11}{:>9}  basis\n", "what", "paper", "simulated", "error");
    for number in &r.numbers {
        out += &line(number);
    }
    out += "\nDirections (who wins, grows, shrinks)\n";
    for direction in &r.directions {
        let _ = writeln!(out, "  {:<5}{}", if direction.holds { "yes" } else { "NO" }, direction.what);
    }
    out += "\n";
    for basis in [Basis::HeldOut, Basis::Fitted] {
        let (within, all) = r.within(0.25, basis);
        let _ = writeln!(out, "{basis}: {within} of {all} numbers within 25 %");
    }
    let holds = r.directions.iter().filter(|d| d.holds).count();
    let _ = writeln!(out, "directions: {holds} of {} right", r.directions.len());
    out += "Not modelled:\n";
    for what in &r.not_modelled {
        let _ = writeln!(out, "  - {what}");
    }
    out
}

fn line(n: &Number) -> String {
    let simulated = n.simulated.map_or_else(|| "-".to_owned(), |s| format!("{s:.2}"));
    let error = n.error().map_or_else(|| "-".to_owned(), |e| format!("{:+.0} %", e * 100.0));
    let what = format!("{}: {}", n.place, n.what);
    format!("{what:<62}{:>10}{simulated:>11}{error:>9}  {}\n", format!("{:.2}", n.paper), n.basis)
}
