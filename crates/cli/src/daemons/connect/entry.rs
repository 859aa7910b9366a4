//! An entry of tychetab as arguments of `tyche connect`.
//!
//! The options are those of the command, without their dashes: the command line's parser reads
//! them, so that names, ranges and explanations exist once.

use clap::{Arg, Args, Command, FromArgMatches};
use tyche_proto::TargetId;

use super::{ConnectArgs, is_of_a_session};
use crate::shared::attach::Kind;
use crate::shared::error::Result;
use crate::shared::tab::{Fields, Line, Tab};

/// The option of exports that are connected only on request.
const NOAUTO: &str = "noauto";

/// The entry of one export.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Whether to connect without a request: at boot, and by `tyche connect-all`.
    pub(crate) auto: bool,
    /// The arguments of the equivalent `tyche connect`.
    pub(crate) connect: ConnectArgs,
}

impl Entry {
    /// Reads a line.
    ///
    /// # Errors
    /// `Config` if it has a mistake.
    pub(crate) fn of(line: &Line) -> Result<Self> {
        let fields = line.fields.as_ref().map_err(String::clone);
        let parsed = fields.and_then(|fields| Self::parse(&line.export, fields));
        parsed.map_err(|what| line.mistake(&what))
    }

    /// The kind of device that it asks for.
    pub(crate) fn kind(&self) -> Kind {
        self.connect.device.kind
    }

    fn parse(export: &str, Fields { links, options }: &Fields) -> Result<Self, String> {
        let command = ConnectArgs::augment_args(Command::new("connect").no_binary_name(true));
        let mut arguments = vec![export.to_owned()];
        arguments.extend(links.iter().map(|link| format!("--link={link}")));
        let mut auto = true;
        for option in options {
            if option == NOAUTO {
                auto = false;
                continue;
            }
            check(&command, export, option)?;
            arguments.push(format!("--{option}"));
        }
        // Each option is valid by itself: a failure now means that they conflict.
        let matches = command.try_get_matches_from(arguments).map_err(|error| brief(&error))?;
        let connect = ConnectArgs::from_arg_matches(&matches).map_err(|error| brief(&error))?;
        Ok(Self { auto, connect })
    }
}

/// The exports that a machine which knows targets does not connect, because their lines name
/// neither a target nor its key.
pub(super) fn without_target(tab: Tab) -> Vec<String> {
    let has_none = |line: &Line| {
        Entry::of(line).is_ok_and(|Entry { connect, .. }| {
            let is_any = connect.session.wanted().is_ok_and(|(target, _)| target == TargetId::Any);
            is_any && connect.session.native.target_key.is_none() && !connect.fcoe.is_wanted()
        })
    };
    tab.into_lines().into_iter().filter(has_none).map(|line| line.export).collect()
}

/// Checks one option alone, so that the error names it.
fn check(command: &Command, export: &str, option: &str) -> Result<(), String> {
    let key = option.split_once('=').map_or(option, |(key, _)| key);
    // Links have their own field.
    let is_known =
        |it: &&Arg| is_of_a_session(command, it.get_id()) && it.get_long() != Some("link");
    if !command.get_arguments().filter(is_known).any(|it| it.get_long() == Some(key)) {
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::shared::error::Code;

    fn tab(text: &str) -> Tab {
        Tab::parse(Path::new("tab"), text.as_bytes())
    }

    fn entry(text: &str, export: &str) -> Result<Entry> {
        Entry::of(&tab(text).line(export)?)
    }

    fn mistake(text: &str) -> String {
        let lines = tab(text).into_lines();
        let mut wrong = lines.iter().filter_map(|line| Entry::of(line).err());
        let error = wrong.next().unwrap();
        assert_eq!(error.code, Code::Config);
        error.message
    }

    #[test]
    fn a_line_is_a_call_of_connect() {
        let text = "# none\n\n vm1\teth1,eth2  queue-size=64,read-only,ctrl-loss-tmo=-1 # why\n";
        let entry = entry(text, "vm1").unwrap();
        let session = &entry.connect.session;
        assert!(entry.auto && session.common.read_only);
        assert_eq!(session.common.links, ["eth1", "eth2"]);
        assert_eq!((session.common.queue_size, session.common.ctrl_loss_tmo), (64, -1));
    }

    #[test]
    fn fields_may_be_missing_or_none() {
        for text in ["vm1", "vm1 -", "vm1 - -", "vm1 - noauto"] {
            let entry = entry(text, "vm1").unwrap();
            assert!(entry.connect.session.common.links.is_empty());
            assert_eq!(entry.auto, !text.ends_with(NOAUTO));
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
    fn lines_without_a_target_are_found() {
        let port = "20:00:02:00:5e:10:00:01";
        let text = format!("vm1 eth1\nstore/vm2\nvm3 - key=/k,target-key=ask\n{port} - fcoe\n");
        let tab = tab(&format!("{text}vm4 - noauto\nvm5 - wrong\n"));
        assert_eq!(without_target(tab), ["vm1", "vm4"]);
    }

    #[test]
    fn how_the_command_behaves_is_no_option_of_a_line() {
        for name in
            ["approved-key", "daemon", "foreground", "help", "link", "output", "reloaded", "tab"]
        {
            assert!(mistake(&format!("vm1 - {name}=1")).contains("no such option"), "{name}");
        }
    }

    #[test]
    fn a_mistake_is_of_its_own_line_alone() {
        let text = "vm1 - nonsense\nvm2 eth0\n";
        assert_eq!(entry(text, "vm2").unwrap().connect.session.common.links, ["eth0"]);
        assert_eq!(entry(text, "vm1").unwrap_err().code, Code::Config);
        assert_eq!(entry(text, "vm3").unwrap_err().code, Code::NotFound);
    }
}
