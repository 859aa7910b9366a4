//! The program `tyche-csi`.

use std::process::ExitCode;

use clap::Parser;
use tyche_console::output::remark;
use tyche_csi::Options;

fn main() -> ExitCode {
    match tyche_csi::run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            remark(format_args!("tyche-csi: {error}"));
            ExitCode::from(error.code as u8)
        }
    }
}
