//! Manual pages and shell completion scripts, made from the command's definition.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_complete::env::Shells;
use clap_mangen::Man;

use crate::output::print;
use crate::shared::complete::VARIABLE;
use crate::shared::error::{Code, Context, Result};

/// The section of commands for administrators.
const SECTION: &str = "8";
/// The name of the command.
const PROGRAM: &str = "tyche";
/// The end of the page of `tyche` itself.
const FILES: &str = ".SH FILES
.TP
/etc/tyche/target.toml
what this machine exports: tyche\\-target.toml(5)
.TP
/etc/tyche/tychetab
what it connects at boot: tychetab(5)
.TP
/etc/tyche/key
the secret key of this machine: tyche\\-key(8)
.TP
/etc/tyche/known\\-targets
the keys of targets: tyche\\-key\\-known(8)
";
/// The end of each page.
const SEE_ALSO: &str = ".SH \"SEE ALSO\"
tyche(8), tyche\\-target.toml(5), tychetab(5)
.PP
/usr/share/doc/tyche/README, and from there the guide
";
/// zsh loads the script at the first completion: that one must work, too.
const ZSH_AUTOLOADED: &str =
    "if [ \"$funcstack[1]\" = \"_tyche\" ]; then _clap_dynamic_completer_tyche; fi\n";

/// Print what a shell needs to complete commands, options, and the names of exports, sessions,
/// targets and interfaces.
///
/// In bash: `source <(tyche completions bash)`. The Debian package installs it for bash, zsh and
/// fish. It calls `tyche`, which asks targets for their exports if it may send frames.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// Which shell.
    shell: Shell,
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<()> {
    let script = script(args.shell).context(Code::Other, args.shell)?;
    print(&String::from_utf8_lossy(&script))
}

fn script(shell: Shell) -> io::Result<Vec<u8>> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let writer = shells.completer(&shell.to_string()).expect("both are of the same library");
    writer.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    if shell == Shell::Zsh {
        script.extend(ZSH_AUTOLOADED.bytes());
    }
    Ok(script)
}

/// Write the manual pages, one for each command.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// The directory to write them to.
    dir: PathBuf,
}

pub(crate) fn write(args: &ManArgs, mut command: Command) -> Result<()> {
    command.build();
    let about = args.dir.display();
    fs::create_dir_all(&args.dir)
        .and_then(|()| write_pages(&args.dir, &command))
        .context(Code::Other, about)
}

/// The page of a command, and those of the commands below it.
fn write_pages(dir: &Path, command: &Command) -> io::Result<()> {
    // Built commands know their whole name, such as `tyche-link-add`.
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let man = Man::new(command.clone()).section(SECTION);
    let mut page = Vec::new();
    man.render(&mut page)?;
    if name == PROGRAM {
        page.extend(FILES.bytes());
    }
    page.extend(SEE_ALSO.bytes());
    fs::write(dir.join(format!("{name}.{SECTION}")), page)?;
    let shown = |it: &&Command| !it.is_hide_set() && it.get_name() != "help";
    command.get_subcommands().filter(shown).try_for_each(|it| write_pages(dir, it))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, ValueEnum};

    use super::*;
    use crate::Cli;

    #[test]
    fn every_command_has_a_page_but_the_hidden_ones() {
        let dir = tempfile::tempdir().unwrap();
        write(&ManArgs { dir: dir.path().to_owned() }, Cli::command()).unwrap();
        let page = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(page("tyche.8").contains("Exit codes"));
        assert!(page("tyche.8").contains("/etc/tyche/known"));
        for name in ["tyche.8", "tyche-connect.8", "tyche-link-add.8"] {
            let page = page(name);
            assert!(page.contains("SEE ALSO") && page.contains("/usr/share/doc/tyche"), "{page}");
        }
        assert!(page("tyche-connect.8").contains("ctrl"));
        assert!(page("tyche-link-add.8").contains("interface"));
        assert!(!dir.path().join("tyche-man.8").exists());
        assert!(!dir.path().join("tyche-help.8").exists());
    }

    #[test]
    fn every_shell_has_a_script_that_asks_the_program() {
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(*shell).unwrap()).unwrap();
            assert!(script.contains(VARIABLE) && script.contains(PROGRAM), "{script}");
        }
    }

    #[test]
    fn the_definition_of_the_command_holds_together() {
        Cli::command().debug_assert();
    }
}
