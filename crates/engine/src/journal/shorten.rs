//! Shortens a journal: observations that decided nothing go first, then what is oldest.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use gleaner_proto::journal::{self, Record};

/// The latest records, this share of all, are kept as they are.
const LATEST: f64 = 0.25;

/// What is known of a record while it is decided which ones stay.
#[derive(Debug, Clone, Copy)]
struct Outline {
    /// Bytes of its line.
    length: u64,
    is_observation: bool,
    is_decision: bool,
}

/// Replaces the journal at `path` by one of about `most` bytes, as far as its start record allows. Returns it, open at
/// its end, and its length in bytes. At every moment there is a whole journal at `path`. It is read twice, record by
/// record, so that its writer needs no memory for it.
///
/// # Errors
/// The journal cannot be read, or the new one cannot be written.
pub(super) fn file(path: &Path, most: u64) -> io::Result<(File, u64)> {
    let outlines = records(path)?.map(|record| outline(&record?)).collect::<io::Result<Vec<_>>>()?;
    let stays = what_stays(&outlines, most);
    let new = path.with_extension("new");
    let written = File::create(&new).and_then(|file| {
        let mut out = BufWriter::new(file);
        let length = write(records(path)?, &stays, &mut out)?;
        fs::rename(&new, path)?;
        Ok((out.into_inner().map_err(io::IntoInnerError::into_error)?, length))
    });
    if written.is_err() {
        // It would take the space that is missing.
        let _ = fs::remove_file(&new);
    }
    written
}

fn records(path: &Path) -> io::Result<impl Iterator<Item = io::Result<Record>> + use<>> {
    Ok(journal::records(path).map_err(io::Error::other)?.map(|record| record.map_err(io::Error::other)))
}

fn outline(record: &Record) -> io::Result<Outline> {
    Ok(Outline {
        length: line(record)?.len() as u64,
        is_observation: matches!(record, Record::Observation { .. }),
        is_decision: matches!(record, Record::Decision { .. }),
    })
}

/// Writes those of `records` that stay, and returns how many bytes they are.
fn write(
    records: impl Iterator<Item = io::Result<Record>>,
    stays: &[bool],
    out: &mut impl Write,
) -> io::Result<u64> {
    let (mut length, mut missing) = (0, 0u32);
    for (record, stays) in records.zip(stays) {
        let mut record = record?;
        match &mut record {
            Record::Observation { skipped, .. } if *stays => {
                *skipped = skipped.saturating_add(std::mem::take(&mut missing));
            }
            Record::Observation { skipped, .. } => {
                missing = missing.saturating_add(*skipped).saturating_add(1);
            }
            _ => {}
        }
        if *stays {
            let line = line(&record)?;
            length += line.len() as u64;
            out.write_all(&line)?;
        }
    }
    out.flush()?;
    Ok(length)
}

/// For each record, whether it stays.
fn what_stays(outlines: &[Outline], most: u64) -> Vec<bool> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
    let latest = (outlines.len() as f64 * (1.0 - LATEST)) as usize;
    let mut stays = vec![false; outlines.len()];
    let mut room = most;
    for (n, outline) in outlines.iter().enumerate().rev() {
        let decided = outlines.get(n + 1).is_some_and(|next| next.is_decision);
        if n < latest && !decided && outline.is_observation {
            continue;
        }
        if outline.length > room {
            break;
        }
        (stays[n], room) = (true, room - outline.length);
    }
    // It says what the journal is about.
    if let Some(start) = stays.first_mut() {
        *start = true;
    }
    stays
}

fn line(record: &Record) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gleaner_policy::{CpuSet, Event, Observation, PolicyConfig, Setting, WorkloadInterval};
    use gleaner_proto::journal::{Names, VERSION};

    use super::*;

    fn start() -> Record {
        Record::Start {
            version: VERSION,
            unix_ms: 1,
            workload: "x".to_owned(),
            vcpus: CpuSet::first(2),
            config: Box::new(PolicyConfig::default()),
            limits: Vec::new(),
        }
    }

    fn observation(n: u64) -> Record {
        let observation = Observation {
            at: at(n),
            period: Duration::from_millis(100),
            vcpus: Vec::new(),
            workload: WorkloadInterval::default(),
            runnable: 0,
            overload: None,
            throttled: 0.0,
            settled: true,
            cost: Duration::ZERO,
        };
        let in_force = Setting::untouched(&CpuSet::first(2));
        Record::Observation { in_force, observation: Box::new(observation), skipped: 1, last: false }
    }

    fn at(n: u64) -> Duration {
        Duration::from_millis(100 * n)
    }

    fn decision(n: u64) -> Record {
        let event = Event::LimitChanged { from: at(1), to: at(2) };
        Record::Decision { at: at(n), event, names: Names::default() }
    }

    /// A thousand observations, of which every hundredth decided something.
    fn long() -> Vec<Record> {
        let steps = (0..1000).flat_map(|n| {
            let decision = (n % 100 == 99).then(|| decision(n));
            [Some(observation(n)), decision].into_iter().flatten()
        });
        [start()].into_iter().chain(steps).collect()
    }

    fn shortened(records: Vec<Record>, most: u64) -> Vec<Record> {
        let outlines: Vec<_> = records.iter().map(|record| outline(record).unwrap()).collect();
        let mut lines = Vec::new();
        let length = write(records.into_iter().map(Ok), &what_stays(&outlines, most), &mut lines).unwrap();
        assert_eq!(length, lines.len() as u64);
        lines
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    fn observations(records: &[Record]) -> Vec<(Duration, u32)> {
        let one = |record: &Record| match record {
            Record::Observation { observation, skipped, .. } => Some((observation.at, *skipped)),
            _ => None,
        };
        records.iter().filter_map(one).collect()
    }

    #[test]
    fn decisions_and_their_observations_stay_and_what_is_missing_is_counted() {
        let short = shortened(long(), 1 << 20);
        assert_eq!(short[0], start());
        assert_eq!(short.iter().filter(|record| matches!(record, Record::Decision { .. })).count(), 10);
        let left = observations(&short);
        // Each stood for itself and one that had not been written.
        assert_eq!(left[..3], [(at(99), 199), (at(199), 199), (at(299), 199)]);
        assert_eq!(left.iter().map(|(_, skipped)| 1 + skipped).sum::<u32>(), 2000);
        assert_eq!(left[left.len() - 200..], observations(&long())[800..], "the latest are as they were");
    }

    #[test]
    fn if_that_is_too_much_the_oldest_go() {
        let most = 20_000;
        let short = shortened(long(), most);
        assert_eq!(short[0], start());
        assert_eq!(short.last(), long().last());
        let bytes: usize = short[1..].iter().map(|record| line(record).unwrap().len()).sum();
        assert!((19_000..=20_010).contains(&bytes), "{bytes}");
        let left = observations(&short);
        assert_eq!(left[1..], observations(&long())[1001 - left.len()..]);
        assert_eq!(left.iter().map(|(_, skipped)| 1 + skipped).sum::<u32>(), 2000);
        assert_eq!(shortened(long(), 0), [start()], "the start record stays");
        assert!(shortened(Vec::new(), 0).is_empty());
    }

    #[test]
    fn what_is_no_journal_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.journal");
        fs::write(&path, "garbage\n").unwrap();
        file(&path, 1000).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "garbage\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
