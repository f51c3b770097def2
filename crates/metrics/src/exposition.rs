//! The older text format, made of the newer.

/// `openmetrics` in Prometheus' text format 0.0.4, for readers that do not know OpenMetrics.
///
/// The two differ in comments alone, for the types that [`Metrics`](crate::Metrics) has: the older names counters
/// and infos with their suffix, knows no units, and has no end mark.
pub(crate) fn prometheus_text(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut put = |parts: &[&str]| {
        text.extend(parts.iter().copied());
        text.push('\n');
    };
    let mut help = "";
    for line in openmetrics.lines() {
        if let Some(found) = line.strip_prefix("# HELP ") {
            // Without its name, which the suffix belongs to: the type comes with the next line.
            help = found.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|found| found.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                other => ("", other),
            };
            put(&["# HELP ", name, suffix, " ", help]);
            put(&["# TYPE ", name, suffix, " ", kind]);
        } else if !line.starts_with('#') {
            put(&[line]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_comments_differ() {
        let openmetrics = "# HELP p_seconds P, in # HELP.\n# TYPE p_seconds counter\n# UNIT p_seconds seconds\n\
            p_seconds_total{a=\"# b\"} 1.5\n# HELP build B.\n# TYPE build info\nbuild_info{version=\"1\"} 1\n\
            # HELP g G.\n# TYPE g gauge\ng 2\n# EOF\n";
        let text = "# HELP p_seconds_total P, in # HELP.\n# TYPE p_seconds_total counter\np_seconds_total{a=\"# b\"} 1.5\n\
            # HELP build_info B.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n\
            # HELP g G.\n# TYPE g gauge\ng 2\n";
        assert_eq!(prometheus_text(openmetrics), text);
    }
}
