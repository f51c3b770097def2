//! `gleanerd`: keeps idle vCPUs ready for the services of a virtual machine.

fn main() {}
