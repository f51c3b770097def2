//! The formats of result files and of `gleaner diagnose --json`, which other programs read: what is written differently
//! needs a new schema.

mod common;

use common::{diagnosis, result};
use gleaner_proto::result::SCHEMA;
use gleaner_testing::shape;
use serde_json::json;

#[test]
fn a_result_file_has_the_recorded_shape() {
    insta::assert_snapshot!(format!("result-{SCHEMA}"), shape(&json!(result())));
}

#[test]
fn a_diagnosis_has_the_recorded_shape() {
    insta::assert_snapshot!("diagnosis", shape(&json!(diagnosis())));
}
