//! How two measured quantities correlate, as in the Gleaner paper's Figures 1 and 2.

use serde::{Deserialize, Serialize};

/// Pearson's correlation coefficient with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Correlation {
    /// The coefficient, −1..=1; 0 is no linear relation.
    pub r: f64,
    /// The lower end of the interval; −1 with three points.
    pub low: f64,
    /// The upper end of the interval; 1 with three points.
    pub high: f64,
    /// Number of points.
    pub n: usize,
}

/// 95 % of a standard normal distribution lie between this and its negative.
const NORMAL_95: f64 = 1.959_963_984_540_054;

/// Correlates the points (x, y). The interval is that of Fisher's z transformation (*On the "probable error" of
/// a coefficient of correlation deduced from a small sample*, Metron 1, 1921). `None` with fewer than three
/// points, or if all x or all y are equal.
pub fn correlation(points: &[(f64, f64)]) -> Option<Correlation> {
    let n = points.len();
    if n < 3 {
        return None;
    }
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n as f64;
    let (mean_x, mean_y) = (mean(|p| p.0), mean(|p| p.1));
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in points {
        let (dx, dy) = (x - mean_x, y - mean_y);
        xx += dx * dx;
        yy += dy * dy;
        xy += dx * dy;
    }
    let r = (xy / (xx * yy).sqrt()).clamp(-1.0, 1.0);
    if !r.is_finite() {
        return None;
    }
    let reach = NORMAL_95 / ((n - 3) as f64).sqrt();
    // The hyperbolic tangent of ±∞ is ±1: a perfect correlation keeps a perfect interval, except with three
    // points, which say nothing.
    let end = |z: f64| if n == 3 { z.signum() } else { (r.atanh() + z).tanh() };
    Some(Correlation { r, low: end(-reach), high: end(reach), n })
}
