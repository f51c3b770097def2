//! The page in a real browser: it renders, respects the colour scheme, and nothing overlaps or overflows with
//! the fonts that are actually installed.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gleaner_report::{bench, diagnosis, host, reproduction};
use gleaner_testing::skipped;

/// The browser, or the reason to skip the test; on a CI machine a missing browser is a failure.
fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = ["chromium", "chromium-browser", "google-chrome"];
    let found =
        std::env::split_paths(&path).flat_map(|dir| places.map(|name| dir.join(name))).find(|p| p.is_file());
    if found.is_none() {
        skipped("there is no Chromium; `scripts/setup test` installs it");
    }
    found
}

/// Runs the browser on `page` in a window of this width; returns its standard output.
fn browse(browser: &Path, dir: &Path, page: &Path, width: u32, options: &[String]) -> String {
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("--window-size={width},2400"))
        .args(options)
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A screenshot.
struct Shot {
    width: u32,
    pixels: Vec<[u8; 3]>,
}

impl Shot {
    fn take(browser: &Path, dir: &Path, page: &Path, width: u32, dark: bool) -> Self {
        let file = dir.join("shot.png");
        let scheme = u8::from(!dark);
        let options = [
            format!("--blink-settings=preferredColorScheme={scheme}"),
            format!("--screenshot={}", file.display()),
        ];
        browse(browser, dir, page, width, &options);
        let mut reader =
            png::Decoder::new(std::io::BufReader::new(fs::File::open(&file).unwrap())).read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        assert_eq!(info.bit_depth, png::BitDepth::Eight);
        let samples = info.color_type.samples();
        let pixels = bytes[..info.buffer_size()].chunks_exact(samples).map(|p| [p[0], p[1], p[2]]).collect();
        fs::remove_file(file).unwrap();
        Self { width: info.width, pixels }
    }

    fn colours(&self) -> usize {
        self.pixels.iter().collect::<HashSet<_>>().len()
    }

    /// Brightness of the upper left corner, 0 to 255.
    fn background(&self) -> u8 {
        self.pixels[0][1]
    }
}

#[test]
fn the_page_is_drawn_light_and_dark_wide_and_narrow() {
    let Some(browser) = chromium() else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    for (text, _) in pages() {
        fs::write(&page, text).unwrap();
        for (width, dark) in [(1280, false), (1280, true), (400, false), (400, true)] {
            let shot = Shot::take(&browser, dir.path(), &page, width, dark);
            assert_eq!(shot.width, width);
            assert!(shot.colours() > 100, "{width} px: {} colours", shot.colours());
            assert_eq!(shot.background() < 64, dark, "{width} px, dark {dark}: {}", shot.background());
        }
    }
}

/// Each kind of page with its number of figures.
fn pages() -> [(String, usize); 4] {
    let (result, papers, found) = (common::result(), common::reproduction(), common::diagnosis());
    let record = common::host();
    [
        (bench::html(&result).unwrap(), bench::figures(&result).len()),
        (reproduction::html(&papers).unwrap(), reproduction::figures(&papers).len()),
        (diagnosis::html(&found, &common::environment(), "{}"), diagnosis::figures(&found).len()),
        (host::html(&record, "{}"), host::figures(&record).len()),
    ]
}

/// A frame of any width (the browser's own window is at least 500 px wide) that shows what its page reports.
fn frame(page: &str, width: u32) -> String {
    format!(
        "<!DOCTYPE html><div id=\"verdict\"></div><script>addEventListener('message', e => {{ \
         document.getElementById('verdict').textContent = e.data }})</script>\
         <iframe src=\"{page}\" style=\"border:0;width:{width}px;height:2000px\"></iframe>"
    )
}

/// Checks everything that is shown, and reports problems to the parent window.
const CHECKER: &str = r"<script>
window.addEventListener('load', () => {
  document.querySelectorAll('details').forEach(d => { d.open = true; });
  const found = [];
  const box = e => e.getBoundingClientRect();
  const shown = e => e.getClientRects().length > 0 && box(e).width > 0;
  const inside = (a, b) => a.left >= b.left - 1 && a.right <= b.right + 1 && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const texts = svg => [...svg.querySelectorAll('text')].filter(shown);
  const overlaps = svg => {
    const all = texts(svg), pairs = [];
    all.forEach((a, i) => all.slice(0, i).forEach(b => {
      if (meet(box(a), box(b))) pairs.push(a.textContent + ' / ' + b.textContent);
    }));
    return pairs;
  };
  let checked = 0;
  const drawings = [...document.querySelectorAll('svg')].filter(shown);
  for (const svg of drawings) {
    checked += texts(svg).length;
    overlaps(svg).forEach(pair => found.push('overlap: ' + pair));
    texts(svg).filter(t => !inside(box(t), box(svg))).forEach(t => found.push('outside: ' + t.textContent));
  }
  const blocks = [...document.querySelectorAll('h1,h2,h3,p,li,figure,figcaption,dl,pre,summary,button,.scroll')].filter(shown);
  for (const block of blocks) {
    if (box(block).right > window.innerWidth + 1) found.push('too wide: ' + block.textContent.slice(0, 40));
    if (block.className !== 'scroll' && block.scrollWidth > block.clientWidth + 1 && block.clientWidth > 0)
      found.push('runs over: ' + block.textContent.slice(0, 40));
  }
  const sections = [...document.querySelectorAll('header,section')].filter(shown);
  sections.slice(1).forEach((s, i) => { if (meet(box(s), box(sections[i]))) found.push('sections overlap'); });
  if (document.documentElement.scrollWidth > window.innerWidth) found.push('the page scrolls sideways');
  // The check itself must see an overlap where there is one.
  const copy = texts(drawings[0])[0].cloneNode(true);
  texts(drawings[0])[0].after(copy);
  const blind = overlaps(drawings[0]).length === 0;
  const verdict = { found, checked, drawings: drawings.length, blind, width: window.innerWidth };
  parent.postMessage(JSON.stringify(verdict), '*');
});
</script>";

#[test]
fn nothing_overlaps_or_overflows() {
    let Some(browser) = chromium() else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    for (text, figures) in pages() {
        fs::write(&page, text.replace("</body>", &format!("{CHECKER}</body>"))).unwrap();
        for width in [1280, 800, 400] {
            let verdict = verdict(&browser, dir.path(), width);
            assert_eq!(verdict["found"], serde_json::json!([]), "{width} px");
            assert_eq!((&verdict["blind"], &verdict["width"]), (&false.into(), &width.into()));
            assert_eq!(verdict["drawings"], figures, "each figure is shown once at {width} px");
            assert!(verdict["checked"].as_u64().unwrap() > 60, "{verdict}");
        }
    }
}

/// Result of the checker in `page.html` at this window width.
fn verdict(browser: &Path, dir: &Path, width: u32) -> serde_json::Value {
    let options = ["--dump-dom".to_owned(), "--virtual-time-budget=2000".to_owned()];
    let outer = dir.join("frame.html");
    fs::write(&outer, frame("page.html", width)).unwrap();
    let dom = browse(browser, dir, &outer, 1400, &options);
    let verdict = dom.split("<div id=\"verdict\">").nth(1).unwrap().split("</div>").next().unwrap();
    serde_json::from_str(&verdict.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")).unwrap()
}
