//! The answer to an HTTP request, made of nothing but the request's bytes.

use crate::exposition;

/// The longest request head, in bytes: request line and headers.
pub(crate) const MOST_HEAD_BYTES: usize = 8 * 1024;
const MOST_HEADERS: usize = 64;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// The whole response to the request that `received` starts with; `None` while its head is incomplete. Every
/// response ends the connection. `metrics` makes an exposition in the OpenMetrics format.
pub(crate) fn respond(received: &[u8], metrics: &mut dyn FnMut() -> String) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(received) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if received.len() < MOST_HEAD_BYTES => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Some(failure("431 Request Header Fields Too Large", "the request's head is too long"));
        }
        Err(error) => {
            return Some(failure("400 Bad Request", &format!("this is not an HTTP/1.1 request: {error}")));
        }
    }
    let method = request.method.unwrap_or_default();
    if !matches!(method, "GET" | "HEAD") {
        let (status, text) = ("405 Method Not Allowed", "use GET or HEAD\n");
        return Some(response(status, PLAIN, "Allow: GET, HEAD\r\n", text, true));
    }
    let with_body = method == "GET";
    let target = request.path.unwrap_or_default();
    Some(match target.split('?').next() {
        Some("/metrics") => {
            let openmetrics = metrics();
            if wants_openmetrics(request.headers) {
                response("200 OK", OPENMETRICS, "", &openmetrics, with_body)
            } else {
                let text = exposition::prometheus_text(&openmetrics);
                response("200 OK", PROMETHEUS_TEXT, "", &text, with_body)
            }
        }
        Some("/") => {
            response("200 OK", PLAIN, "", "This is Gleaner; its metrics are at /metrics.\n", with_body)
        }
        _ => response(
            "404 Not Found",
            PLAIN,
            "",
            "there is nothing here; the metrics are at /metrics\n",
            with_body,
        ),
    })
}

fn failure(status: &str, why: &str) -> Vec<u8> {
    response(status, PLAIN, "", &format!("{why}\n"), true)
}

fn response(status: &str, content_type: &str, more: &str, body: &str, with_body: bool) -> Vec<u8> {
    let length = body.len();
    let body = if with_body { body } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{more}Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Whether the `Accept` headers name OpenMetrics, and prefer nothing to it. `*/*` alone is somebody who reads the
/// page, and gets the older format, which every reader knows.
fn wants_openmetrics(headers: &[httparse::Header<'_>]) -> bool {
    let (mut openmetrics, mut text) = (0.0, 0.0);
    for header in headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept")) {
        for range in String::from_utf8_lossy(header.value).split(',') {
            let mut parts = range.split(';').map(str::trim);
            let quality = match parts.next() {
                Some(kind) if kind.eq_ignore_ascii_case("application/openmetrics-text") => &mut openmetrics,
                Some(kind) if kind.eq_ignore_ascii_case("text/plain") => &mut text,
                _ => continue,
            };
            let given = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
            *quality = f64::max(*quality, given.map_or(1.0, |q| q.parse().unwrap_or(0.0)));
        }
    }
    openmetrics > 0.0 && openmetrics >= text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXPOSITION: &str = "# HELP a_b A.\n# TYPE a_b counter\na_b_total 1\n# EOF\n";
    /// What a Prometheus 2.42 sends.
    const PROMETHEUS: &str = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9839\r\nUser-Agent: Prometheus/2.42.0\r\nAccept: \
         application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n\
         Accept-Encoding: gzip\r\nX-Prometheus-Scrape-Timeout-Seconds: 10\r\n\r\n";

    fn answer(request: &str) -> String {
        String::from_utf8(respond(request.as_bytes(), &mut || EXPOSITION.to_owned()).unwrap()).unwrap()
    }

    fn get(path: &str, accept: &str) -> String {
        answer(&format!("GET {path} HTTP/1.1\r\n{accept}\r\n"))
    }

    #[test]
    fn a_prometheus_gets_openmetrics() {
        let answer = answer(PROMETHEUS);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains(&format!("Content-Type: {OPENMETRICS}\r\n")), "{answer}");
        assert!(answer.contains(&format!("Content-Length: {}\r\n", EXPOSITION.len())), "{answer}");
        assert!(answer.ends_with(&format!("\r\n\r\n{EXPOSITION}")), "{answer}");
    }

    #[test]
    fn the_older_format_is_for_whoever_does_not_ask_for_openmetrics_or_prefers_text() {
        for accept in [
            "",
            "Accept: */*\r\n",
            "Accept: text/plain\r\n",
            "Accept: text/plain, application/openmetrics-text;q=0.5\r\n",
            "Accept: application/openmetrics-text;q=0\r\n",
            "Accept: application/openmetrics-text;q=nonsense\r\n",
        ] {
            let answer = get("/metrics", accept);
            assert!(answer.contains(&format!("Content-Type: {PROMETHEUS_TEXT}\r\n")), "{accept}: {answer}");
            assert!(answer.ends_with("\r\n\r\n# HELP a_b_total A.\n# TYPE a_b_total counter\na_b_total 1\n"));
        }
        for accept in [
            "Accept: application/openmetrics-text\r\n",
            "accept: Application/OpenMetrics-Text; version=1.0.0; q=0.2\r\n",
            "Accept: text/plain;q=0.5\r\nAccept: application/openmetrics-text;q=0.5\r\n",
        ] {
            assert!(get("/metrics", accept).contains(OPENMETRICS), "{accept}");
        }
    }

    #[test]
    fn other_paths_methods_and_heads_have_their_own_status() {
        assert!(get("/", "").ends_with("its metrics are at /metrics.\n"));
        assert!(get("/metrics?name=value", "").starts_with("HTTP/1.1 200 "));
        assert!(get("/metrics/", "").starts_with("HTTP/1.1 404 "));
        assert!(
            answer("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")
                .contains("\r\nAllow: GET, HEAD\r\n")
        );
        assert!(answer("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
        assert!(answer("GET / HTTP/3.0\r\n\r\n").starts_with("HTTP/1.1 400 "));
        assert!(
            answer(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(100))).starts_with("HTTP/1.1 431 ")
        );
        let head = answer("HEAD /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n");
        assert!(
            head.contains(&format!("Content-Length: {}\r\n", EXPOSITION.len())) && head.ends_with("\r\n\r\n")
        );
    }

    #[test]
    fn an_incomplete_head_is_waited_for_until_it_is_too_long() {
        for length in 0..PROMETHEUS.len() {
            let part = &PROMETHEUS.as_bytes()[..length];
            assert_eq!(respond(part, &mut || unreachable!("not asked yet")), None, "{length}");
        }
        let long = format!("GET / HTTP/1.1\r\na: {}", "b".repeat(MOST_HEAD_BYTES));
        assert!(answer(&long).starts_with("HTTP/1.1 431 "));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_and_every_answer_is_a_response(
            bytes in prop::collection::vec(any::<u8>(), 0..600),
            request in "[A-Z]{0,8} ?[ -~]{0,40} ?HTTP/1\\.[01]\r\n([a-zA-Z-]{1,10}: ?[ -~]{0,30}\r\n){0,5}\r\n",
            accept in "[a-z/*;,=.0-9 -]{0,60}",
        ) {
            let asked = format!("GET /metrics HTTP/1.1\r\nAccept: {accept}\r\n\r\n");
            for bytes in [bytes.as_slice(), request.as_bytes(), asked.as_bytes()] {
                if let Some(answer) = respond(bytes, &mut || EXPOSITION.to_owned()) {
                    prop_assert!(answer.starts_with(b"HTTP/1.1 "));
                }
            }
        }
    }
}
