//! tychetab: the exports of this machine, one on each line.
//!
//! ```text
//! # export  links      options
//! vm1       eth1,eth2  ctrl-loss-tmo=-1,queue-size=256
//! backup    -          read-only,noauto
//! ```
//!
//! The fields are those of fstab and crypttab: separated by blanks, `-` for none, and special
//! characters (a blank, a comma within a value) are written as a backslash and three octal digits.
//! The options are those of `tyche connect`, without their dashes: the command line's parser reads
//! them, so that names, ranges and explanations exist once. A mistake affects its own line only: a
//! booting machine needs the other disks all the same.

use std::path::{Path, PathBuf};

use clap::{Args, Command, FromArgMatches};

use crate::connect::ConnectArgs;
use crate::error::{Code, Error, Result};

/// The default path.
pub(crate) const PATH: &str = "/etc/tyche/tychetab";

/// Options about the command, not about the session; `link` has its own field.
const NOT_OF_A_SESSION: [&str; 7] =
    ["daemon", "foreground", "help", "link", "output", "retry", "tab"];
/// The option of exports that are connected only on request.
const NOAUTO: &str = "noauto";

/// The whole file.
#[derive(Debug)]
pub(crate) struct Tab {
    path: PathBuf,
    lines: Vec<Line>,
}

/// A line of the file.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) export: String,
    /// The parsed line, or its mistake.
    pub(crate) entry: Result<Entry>,
}

/// The entry of one export.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Whether to connect without a request: at boot, and by `tyche connect-all`.
    pub(crate) auto: bool,
    /// The arguments of the equivalent `tyche connect`.
    pub(crate) connect: ConnectArgs,
}

impl Tab {
    /// Reads the file.
    ///
    /// # Errors
    /// `NotFound` if there is none, `Config` if it can't be read; mistakes are kept with their
    /// lines.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let code = match error.kind() {
                std::io::ErrorKind::NotFound => Code::NotFound,
                _ => Code::Config,
            };
            Error::new(code, format!("{}: {error}", path.display()))
        })?;
        Ok(Self::parse(path, &text))
    }

    fn parse(path: &Path, text: &str) -> Self {
        let mut lines = Vec::<Line>::new();
        for (number, line) in (1..).zip(text.lines()) {
            let fields: Vec<_> = line.split_ascii_whitespace().collect();
            let Some(first) = fields.first().filter(|field| !field.starts_with('#')) else {
                continue;
            };
            let export = unescape(first);
            let parsed = match lines.iter().any(|line| line.export == export) {
                true => Err(format!("`{export}` is listed above already")),
                false => Entry::parse(&export, &fields[1..]),
            };
            let entry = parsed.map_err(|what| {
                Error::new(Code::Config, format!("{}: line {number}: {what}", path.display()))
            });
            lines.push(Line { export, entry });
        }
        Self { path: path.to_owned(), lines }
    }

    /// All lines, from top to bottom.
    pub(crate) fn into_lines(self) -> Vec<Line> {
        self.lines
    }

    /// The entry of an export.
    ///
    /// # Errors
    /// `NotFound` if there is none, `Config` if it has a mistake.
    pub(crate) fn entry(self, export: &str) -> Result<Entry> {
        let line = self.lines.into_iter().find(|line| line.export == export);
        let path = self.path.display();
        let unlisted = || Error::new(Code::NotFound, format!("{path}: no line for `{export}`"));
        line.ok_or_else(unlisted)?.entry
    }
}

impl Entry {
    /// Parses the fields after the export.
    fn parse(export: &str, fields: &[&str]) -> Result<Self, String> {
        if let Some(surplus) = fields.get(2).filter(|field| !field.starts_with('#')) {
            return Err(format!("`{surplus}`: a line has three fields: export, links, options"));
        }
        let list = |index| {
            let field: &str = fields.get(index).copied().filter(|it| *it != "-").unwrap_or("");
            field.split(',').filter(|item| !item.is_empty()).map(unescape)
        };
        let command = ConnectArgs::augment_args(Command::new("connect").no_binary_name(true));
        let mut arguments = vec![export.to_owned()];
        arguments.extend(list(0).map(|link| format!("--link={link}")));
        let mut auto = true;
        for option in list(1) {
            if option == NOAUTO {
                auto = false;
                continue;
            }
            check(&command, export, &option)?;
            arguments.push(format!("--{option}"));
        }
        // Each option is valid by itself: a failure now means that they conflict.
        let matches = command.try_get_matches_from(arguments).map_err(|error| brief(&error))?;
        let connect = ConnectArgs::from_arg_matches(&matches).map_err(|error| brief(&error))?;
        Ok(Self { auto, connect })
    }
}

/// Checks one option alone, so that the error names it.
fn check(command: &Command, export: &str, option: &str) -> Result<(), String> {
    let key = option.split_once('=').map_or(option, |(key, _)| key);
    let known = |name: &str| !NOT_OF_A_SESSION.contains(&name);
    let mut names = command.get_arguments().filter_map(|it| it.get_long()).filter(|it| known(it));
    if !names.any(|name| name == key) {
        let remedy = "`tyche connect --help` lists the options, which go without dashes here";
        return Err(format!("`{option}`: there is no such option; {remedy}"));
    }
    let arguments = [export.to_owned(), format!("--{option}")];
    let matches = command.clone().try_get_matches_from(arguments);
    matches.map(drop).map_err(|error| format!("`{option}`: {}", brief(&error)))
}

/// The message of the command line's parser, on one line and without its advice.
fn brief(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let text = lines.collect::<Vec<_>>().join(" ");
    text.trim_start_matches("error: ").to_owned()
}

/// Resolves a backslash and three octal digits, as in fstab. Other backslashes stay.
fn unescape(field: &str) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|it| std::str::from_utf8(it).ok());
        let escaped = digits.filter(|_| byte == b'\\');
        match escaped.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(value) => {
                bytes.push(value);
                rest = &after[3..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tab(text: &str) -> Tab {
        Tab::parse(Path::new("tab"), text)
    }

    fn mistake(text: &str) -> String {
        let mut wrong = tab(text).into_lines().into_iter().filter_map(|it| it.entry.err());
        let error = wrong.next().unwrap();
        assert_eq!(error.code, Code::Config);
        error.message
    }

    #[test]
    fn a_line_is_a_call_of_connect() {
        let text = "# none\n\n vm1\teth1,eth2  queue-size=64,read-only,ctrl-loss-tmo=-1 # why\n";
        let entry = tab(text).entry("vm1").unwrap();
        let session = &entry.connect.session;
        assert!(entry.auto && session.read_only);
        assert_eq!(session.links, ["eth1", "eth2"]);
        assert_eq!((session.queue_size, session.ctrl_loss_tmo), (64, -1));
    }

    #[test]
    fn fields_may_be_missing_or_none() {
        for text in ["vm1", "vm1 -", "vm1 - -", "vm1 - noauto"] {
            let entry = tab(text).entry("vm1").unwrap();
            assert!(entry.connect.session.links.is_empty());
            assert_eq!(entry.auto, !text.ends_with(NOAUTO));
        }
    }

    #[test]
    fn what_separates_fields_and_options_can_be_escaped() {
        let entry = tab(r"my\040disk - host-name=a\054b\134").entry("my disk").unwrap();
        assert_eq!(entry.connect.session.host_name.as_deref(), Some(r"a,b\"));
        for odd in [r"\", r"\4", r"\09x", r"\777", "\\\u{e4}\u{e4}"] {
            assert_eq!(unescape(odd), odd);
        }
    }

    #[test]
    fn a_mistake_is_named_with_line_and_option() {
        let said = mistake("# x\nvm1 eth1 queue-size=0");
        assert!(said.starts_with("tab: line 2: `queue-size=0`: "), "{said}");
        assert!(said.contains("1..=1024") && !said.contains('\n'), "{said}");
        let said = mistake("vm1 eth1 as=punchcard");
        assert!(said.contains("`as=punchcard`") && said.contains("loop"), "{said}");
        let said = mistake("vm1 eth1 read-only=yes");
        assert!(said.contains("`read-only=yes`"), "{said}");
        assert!(mistake("vm1 eth1 queue-siz=3").contains("`queue-siz=3`: there is no such"));
        assert!(mistake("vm1 eth1 queue-size").contains("`queue-size`"));
        assert!(mistake("vm1 eth1 read-only 0").contains("`0`: a line has three fields"));
        assert!(mistake("vm1\nvm1").contains("line 2: `vm1` is listed above already"));
    }

    #[test]
    fn how_the_command_behaves_is_no_option_of_a_line() {
        for name in NOT_OF_A_SESSION {
            assert!(mistake(&format!("vm1 - {name}=1")).contains("no such option"), "{name}");
        }
    }

    #[test]
    fn a_mistake_is_of_its_own_line_alone() {
        let text = "vm1 - nonsense\nvm2 eth0\n";
        assert_eq!(tab(text).entry("vm2").unwrap().connect.session.links, ["eth0"]);
        assert_eq!(tab(text).entry("vm1").unwrap_err().code, Code::Config);
        assert_eq!(tab(text).entry("vm3").unwrap_err().code, Code::NotFound);
    }
}
