//! `matmul`: matrix multiplication on every vCPU, the papers' co-runner that never waits.
//!
//! Synchronisation: none; each thread multiplies its own matrices, in blocks that fit into a processor's L1
//! cache. Self-check: the entries are small integers, whose floating-point sums are exact in any order, and
//! every product is compared, entry by entry, with one computed by the definition before the clock started.

use std::hint::black_box;

use super::spec::{Spec, Threads, Variant};
use super::work::{check, mix, run_threads};
use super::{Amount, Outcome, Settings, WorkloadError};

pub(super) const SPEC: Spec = Spec {
    name: "matmul",
    about: "every thread multiplies matrices of 128 x 128 numbers on its own; one operation is one product",
    variants: &[Variant {
        kind: None,
        threads: Threads::per_vcpu("threads", 1),
        granularity: None,
        imbalance: None,
    }],
};

/// Rows and columns: a product takes a few milliseconds at most, so a thread notices the end of its time.
const N: usize = 128;
/// Rows and columns of a block: three blocks take 24 KiB.
const BLOCK: usize = 32;

/// In row-major order.
type Matrix = Vec<f64>;

pub(super) fn run(amount: Amount, settings: &Settings) -> Result<Outcome, WorkloadError> {
    let (a, b) = (matrix(1), matrix(2));
    let reference = multiply_by_definition(&a, &b);
    let (products, elapsed) = run_threads(SPEC.name, settings.threads, |index, start| {
        // A copy per thread, like the rows of each thread in the papers.
        let (a, b) = (a.clone(), b.clone());
        let mut product = vec![0.0; N * N];
        let meter = amount.share(index, settings.threads).since(start, 1);
        let mut products = 0;
        while meter.more(products) {
            multiply(black_box(&a), black_box(&b), &mut product);
            check_product(&reference, &product)?;
            products += 1;
        }
        Ok(products)
    })?;
    let operations = products.iter().sum();
    Ok(Outcome { operations, elapsed, checks: operations })
}

/// Integers from 0 to 15.
fn matrix(seed: u64) -> Matrix {
    (0..(N * N) as u64).map(|place| (mix(seed << 32 | place, 3) >> 60) as f64).collect()
}

/// `product` = `a` · `b`, block by block.
fn multiply(a: &[f64], b: &[f64], product: &mut [f64]) {
    product.fill(0.0);
    let blocks = || (0..N).step_by(BLOCK);
    for i0 in blocks() {
        for k0 in blocks() {
            for j0 in blocks() {
                for i in i0..i0 + BLOCK {
                    let row = &mut product[i * N + j0..][..BLOCK];
                    for k in k0..k0 + BLOCK {
                        let factor = a[i * N + k];
                        for (sum, entry) in row.iter_mut().zip(&b[k * N + j0..][..BLOCK]) {
                            *sum += factor * entry;
                        }
                    }
                }
            }
        }
    }
}

/// Reference implementation: each entry is the product of a row and a column.
fn multiply_by_definition(a: &[f64], b: &[f64]) -> Matrix {
    let entry = |i: usize, j: usize| (0..N).map(|k| a[i * N + k] * b[k * N + j]).sum();
    (0..N * N).map(|place| entry(place / N, place % N)).collect()
}

#[allow(clippy::float_cmp, reason = "whole numbers below 2^53 are exact")]
fn check_product(reference: &[f64], product: &[f64]) -> Result<(), WorkloadError> {
    match reference.iter().zip(product).find(|(expected, found)| expected != found) {
        Some((expected, found)) => check(SPEC.name, "entry of a product", *expected, *found),
        None => check(SPEC.name, "number of entries", reference.len(), product.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_give_the_same_product() {
        let (a, b) = (matrix(1), matrix(2));
        assert_ne!(a, b);
        let mut product = vec![1.0; N * N];
        multiply(&a, &b, &mut product);
        check_product(&multiply_by_definition(&a, &b), &product).unwrap();
    }

    #[test]
    fn notices_one_wrong_entry() {
        let right = multiply_by_definition(&matrix(1), &matrix(2));
        for place in [0, N, N * N - 1] {
            for wrong_entry in [right[place] + 1.0, f64::NAN] {
                let mut wrong = right.clone();
                wrong[place] = wrong_entry;
                assert!(check_product(&right, &wrong).is_err());
            }
        }
        assert!(check_product(&right, &right[1..]).is_err());
    }
}
