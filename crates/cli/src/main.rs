//! The program `tyche`.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    tyche_cli::main()
}
