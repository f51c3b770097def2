//! The wake graph: which threads wake which, how often, and at what latency.

use std::collections::BTreeMap;

use super::tables::share;
use super::{Diagnosis, Wake};
use crate::number::{Unit, show};
use crate::page::Figure;
use crate::plot::{Graph, Link, Node};

/// Most boxes in the graph, including the one for all other names.
const MAX_NODES: usize = 20;
/// Most links drawn, and the share of wake-ups that they need not cover.
const MAX_LINKS: usize = 40;
const RARE_SHARE: f64 = 0.001;

/// Link series by the state of the wakee's vCPU.
const AWAKE: usize = 1;
const HALTED: usize = 2;
const POLLED: usize = 3;

/// Wake-ups between boxes; each box is one name, except that the last one can stand for all others.
struct Boxes {
    names: Vec<String>,
    links: Vec<(usize, usize, Wake)>,
}

/// The graph; nothing if there were no wake-ups.
pub(super) fn figure(diagnosis: &Diagnosis) -> Vec<Figure> {
    let Boxes { mut names, mut links } = boxes(&diagnosis.edges, MAX_NODES);
    let left_out = thin(&mut names, &mut links);
    if links.is_empty() {
        return Vec::new();
    }
    let note = |name: &String| {
        let thread = diagnosis.threads.iter().find(|thread| thread.name == *name);
        match thread {
            Some(thread) => format!("CPU {}", share(thread.cpu)),
            None if name == "(interrupt)" => "idle vCPUs".to_owned(),
            None if name.starts_with('(') => String::new(),
            None => "outside".to_owned(),
        }
    };
    let title = "Wake-ups from thread to thread";
    let graph = Graph {
        title: title.to_owned(),
        about: "Graph: arrows from waker to wakee, by thread name; the table below has the same numbers."
            .to_owned(),
        nodes: names.iter().map(|name| Node { label: name.clone(), note: note(name) }).collect(),
        links: links.iter().map(|(from, to, wake)| link(*from, *to, wake)).collect(),
        key: vec![
            (HALTED, "mostly vCPUs that had halted".to_owned()),
            (POLLED, "mostly vCPUs that polled".to_owned()),
            (AWAKE, "neither".to_owned()),
        ],
    };
    vec![Figure {
        name: "wake-graph".to_owned(),
        title: title.to_owned(),
        caption: format!(
            "Arrows go from waker to wakee; the more often in a second, the wider. Beside them: how often, and the mean time \
             until the woken thread runs. Threads of the same name are one box; those outside the diagnosed program appear \
             only as wakers.{left_out}"
        ),
        half: false,
        plot: Box::new(graph),
    }]
}

/// Drops the rarest links and the boxes that this leaves unconnected; returns a sentence about it.
fn thin(names: &mut Vec<String>, links: &mut Vec<(usize, usize, Wake)>) -> String {
    links.sort_by(|a, b| b.2.per_second.total_cmp(&a.2.per_second));
    let (all, total) = (links.len(), links.iter().map(|link| link.2.per_second).sum::<f64>());
    let mut drawn = 0.0;
    links.retain(|link| {
        let missing = drawn < total * (1.0 - RARE_SHARE);
        drawn += link.2.per_second;
        missing
    });
    links.truncate(MAX_LINKS);
    let linked: Vec<bool> =
        (0..names.len()).map(|name| links.iter().any(|link| link.0 == name || link.1 == name)).collect();
    let place = |name: usize| linked[..name].iter().filter(|there| **there).count();
    for link in links.iter_mut() {
        (link.0, link.1) = (place(link.0), place(link.1));
    }
    let mut there = linked.iter();
    names.retain(|_| there.next() == Some(&true));
    match all - links.len() {
        0 => String::new(),
        rare => {
            let kept: f64 = links.iter().map(|link| link.2.per_second).sum();
            format!(
                " Not drawn: {rare} rare links with {:.2} % of the wake-ups.",
                100.0 * (1.0 - kept / total)
            )
        }
    }
}

fn link(from: usize, to: usize, wake: &Wake) -> Link {
    let (rate, mean) = (show(Unit::Plain, wake.per_second), show(Unit::Seconds, wake.mean_s));
    Link {
        from,
        to,
        weight: wake.per_second,
        label: format!("{rate}/s, {mean}"),
        note: format!(
            "{} wakes {}: {rate} a second, {mean} each, {} on vCPUs that had halted, {} on vCPUs that polled",
            wake.waker,
            wake.wakee,
            share(wake.halted),
            share(wake.polling)
        ),
        series: if wake.halted > 0.5 {
            HALTED
        } else if wake.polling > 0.5 {
            POLLED
        } else {
            AWAKE
        },
    }
}

/// The names with the most wake-ups. If there are more than `most`, the last box stands for all others.
fn boxes(edges: &[Wake], most: usize) -> Boxes {
    let mut busy: BTreeMap<&str, f64> = BTreeMap::new();
    for edge in edges {
        *busy.entry(&edge.waker).or_default() += edge.per_second;
        *busy.entry(&edge.wakee).or_default() += edge.per_second;
    }
    let mut order: Vec<(&str, f64)> = busy.into_iter().collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    let own = if order.len() > most { most - 1 } else { order.len() };
    let mut names: Vec<String> = order[..own].iter().map(|(name, _)| (*name).to_owned()).collect();
    if own < order.len() {
        names.push(format!("({} other names)", order.len() - own));
    }
    let place = |name: &str| order[..own].iter().position(|(known, _)| *known == name).unwrap_or(own);
    let mut links: BTreeMap<(usize, usize), Wake> = BTreeMap::new();
    for edge in edges {
        let pair = (place(&edge.waker), place(&edge.wakee));
        let none = || Wake {
            waker: names[pair.0].clone(),
            wakee: names[pair.1].clone(),
            per_second: 0.0,
            mean_s: 0.0,
            halted: 0.0,
            polling: 0.0,
        };
        let sum = links.entry(pair).or_insert_with(none);
        let rate = sum.per_second + edge.per_second;
        let mean = |a: f64, b: f64| {
            if rate > 0.0 { (a * sum.per_second + b * edge.per_second) / rate } else { 0.0 }
        };
        *sum = Wake {
            mean_s: mean(sum.mean_s, edge.mean_s),
            halted: mean(sum.halted, edge.halted),
            polling: mean(sum.polling, edge.polling),
            per_second: rate,
            ..sum.clone()
        };
    }
    Boxes { names, links: links.into_iter().map(|((from, to), wake)| (from, to, wake)).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wake(from: &str, to: &str, per_second: f64, mean_s: f64, halted: f64) -> Wake {
        Wake { waker: from.to_owned(), wakee: to.to_owned(), per_second, mean_s, halted, polling: 0.0 }
    }

    #[test]
    fn rare_names_share_a_box_and_their_wake_ups_are_summed() {
        let edges = [
            wake("client", "server", 1000.0, 20e-6, 1.0),
            wake("client", "a", 3.0, 10e-6, 0.0),
            wake("client", "b", 1.0, 50e-6, 1.0),
            wake("a", "b", 1.0, 5e-6, 0.0),
        ];
        let Boxes { names, links } = boxes(&edges, 3);
        assert_eq!(names, ["client", "server", "(2 other names)"]);
        let of = |from, to| &links.iter().find(|l| (l.0, l.1) == (from, to)).unwrap().2;
        let rest = of(0, 2);
        assert!((rest.per_second - 4.0).abs() < 1e-9 && (rest.mean_s - 20e-6).abs() < 1e-12, "{rest:?}");
        assert!((rest.halted - 0.25).abs() < 1e-9);
        assert!((of(2, 2).per_second - 1.0).abs() < 1e-9, "among themselves");
        assert_eq!(boxes(&edges, 4).names.len(), 4, "all have room");
    }

    #[test]
    fn the_rarest_links_are_left_out_and_it_is_said() {
        let edges = [
            wake("a", "b", 1.0, 0.0, 0.0),
            wake("client", "server", 9000.0, 0.0, 1.0),
            wake("server", "client", 8999.0, 0.0, 1.0),
        ];
        let Boxes { mut names, mut links } = boxes(&edges, 20);
        let said = thin(&mut names, &mut links);
        assert_eq!(names, ["client", "server"]);
        assert_eq!(links.iter().map(|link| (link.0, link.1)).collect::<Vec<_>>(), [(0, 1), (1, 0)]);
        assert_eq!(said, " Not drawn: 1 rare links with 0.01 % of the wake-ups.");
        assert_eq!(thin(&mut names, &mut links), "");
    }
}
