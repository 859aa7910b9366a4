//! First contact with a target, as with ssh: the user is shown the fingerprint of the key in the
//! target's Offer, and approves the key or not. Also the errors for a known target whose Offer has
//! another key or UUID.
//!
//! Offers are hints, which anybody can send. A forged one can only show the user a wrong
//! fingerprint, or have a connect refused: the session is sealed with the key that was approved.

use std::io::{self, BufRead, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use tyche_proto::TargetId;
use tyche_proto::crypto::PublicKey;
use tyche_proto::wire::{Name, Offer};
use tyche_session::{KnownTarget, KnownTargets};
use uuid::Uuid;

use super::entry;
use super::session::SessionArgs;
use super::trust::{TargetKey, Trust, unknown, unnamed};
use crate::output::{has_terminal, remark, write_error};
use crate::shared::error::{Code, CodedResult, Error, Result};
use crate::shared::tab::{self, Tab};

/// The time for which Offers are collected, before a key is shown to the user or reported as
/// changed. It is long enough to hear the target, and also others that answer in its place.
const LISTEN: Duration = Duration::from_millis(500);
/// The number of invalid answers of the user that count as "no".
const ANSWERS_MAX: usize = 3;

impl SessionArgs {
    /// Asks the user on the terminal whether the target has the right key, if `--target-key ask` is
    /// given and the key is not known. The answer is for [`settled`](SessionArgs::settled).
    ///
    /// # Errors
    /// There is no terminal, the target is not heard or says no key, or the user says no.
    pub(super) fn ask_for_key(&mut self) -> Result<()> {
        if self.native.target_key != Some(TargetKey::Ask) {
            return Ok(());
        }
        let (target, _) = self.wanted()?;
        let known = KnownTargets::read().coded()?;
        if known.find(&target).coded()?.is_some() {
            return Ok(());
        }
        let TargetId::Name(name) = target else { return Err(unnamed()) };
        if !io::stdin().is_terminal() || !has_terminal() {
            return Err(unknown(&name, &self.export));
        }
        let key = self.said_by(name)?;
        for other in known.targets().iter().filter(|it| it.key == key) {
            let other = other.name;
            remark(format_args!(
                "This machine knows the key already, as that of target `{other}`."
            ));
        }
        let question = format!(
            "The key of target `{name}` is not known to this machine. The target says a key with \
             the fingerprint\n  {}\nCompare it with what `tyche key fingerprint` prints there. Is \
             it right, and shall it be kept (yes, no, or the fingerprint)? ",
            key.fingerprint()
        );
        let ask = |text: &str| write_error(text.as_bytes());
        if !confirmed(&mut io::stdin().lock(), ask, &question, &key)? {
            let message = format!("the key of target `{name}` was not confirmed: not connected");
            return Err(Error::new(Code::Refused, message));
        }
        self.approved_key = Some(key);
        Ok(())
    }

    /// The key that the target of that name says.
    fn said_by(&self, name: Name) -> Result<PublicKey> {
        let deadline = Instant::now() + self.timeout();
        let offers = loop {
            let mut offers = self.look_around(LISTEN)?;
            offers.retain(|offer| offer.name == name);
            if !offers.is_empty() {
                break offers;
            }
            if Instant::now() >= deadline {
                return Err(self.unreachable(None));
            }
        };
        match said(&offers)[..] {
            [] => {
                let message = format!(
                    "target `{name}` says no key: make one there with `tyche key generate`, and \
                     serve with --key"
                );
                Err(Error::new(Code::Unreachable, message))
            }
            [key] => Ok(key),
            [one, other, ..] => {
                let message = format!(
                    "two keys are said for target `{name}`, {} and {}: somebody may pass for it; \
                     give its key (--target-key KEY)",
                    one.fingerprint(),
                    other.fingerprint()
                );
                Err(Error::new(Code::Refused, message))
            }
        }
    }

    /// The error for a known target that says another key than the known one, or another UUID;
    /// `None` if it does not, or if it is not heard.
    ///
    /// # Errors
    /// The links can't be opened.
    pub(crate) fn changed_target(&self) -> Result<Option<Error>> {
        let Trust::KnownTarget { file, target } = &self.trust else { return Ok(None) };
        let mut offers = self.look_around(LISTEN)?;
        offers.retain(|offer| offer.name == target.name || offer.target == target.uuid);
        Ok(changed_key(file, target, &offers).or_else(|| changed_uuid(file, target, &offers)))
    }

    /// Keeps a key that the user has approved, now that the target with that UUID has proved that
    /// it owns it. Returns a warning, which is logged, if that fails.
    pub(super) fn remember(&self, uuid: Uuid) -> Option<String> {
        let Trust::Approved(name, key) = self.trust else { return None };
        let kept = KnownTargets::read().and_then(|mut known| known.remember(key, uuid, name));
        let error = kept.err()?;
        let warning =
            format!("the key of target `{name}` is not kept, and will be asked for again: {error}");
        tracing::warn!("{warning}");
        Some(warning)
    }

    /// Tells the user where the approved key was kept, and what has to name its target now.
    pub(super) fn tell_kept(&self) {
        let (Some(key), Ok((target, _))) = (self.approved_key, self.wanted()) else { return };
        let Ok(known) = KnownTargets::read() else { return };
        let Ok(Some(kept)) = known.find(&target) else { return };
        if kept.key != key {
            return;
        }
        remark(format_args!(
            "tyche: the key of target `{}` is kept in {}: connects of this machine need no \
             --target-key for it, and have to name their target: {}",
            kept.name,
            known.path().display(),
            self.export
        ));
        let tab = Path::new(tab::PATH);
        let without_target = Tab::read(tab).map(entry::without_target).unwrap_or_default();
        if !without_target.is_empty() {
            remark(format_args!(
                "tyche: lines of {} that name no target connect nothing from now on: {}; write \
                 TARGET/EXPORT there",
                tab.display(),
                without_target.join(", ")
            ));
        }
    }
}

/// The error for a known target whose Offers say another key.
fn changed_key(file: &Path, target: &KnownTarget, offers: &[Offer]) -> Option<Error> {
    let has_other = |offer: &Offer| offer.key.is_some_and(|key| key != *target.key.as_bytes());
    // If anybody says the known key, or none, it has not changed for all that is heard.
    let other = said(offers).first().copied().filter(|_| offers.iter().all(has_other))?;
    let name = target.name;
    let message = format!(
        "THE KEY OF TARGET `{name}` HAS CHANGED, or somebody passes for it: its fingerprint is {} \
         by line {} of {}, and the target says {}. Ask its administrator; if it has another key \
         now, run `tyche key forget '{name}'`, and connect with --target-key ask",
        target.key.fingerprint(),
        target.line,
        file.display(),
        other.fingerprint()
    );
    Some(Error::new(Code::Refused, message))
}

/// The error for a known target whose Offers say another UUID.
fn changed_uuid(file: &Path, target: &KnownTarget, offers: &[Offer]) -> Option<Error> {
    // If anybody says the known one, it has not changed for all that is heard.
    let is_another = offers.iter().all(|offer| offer.target != target.uuid);
    let other = offers.first().filter(|_| is_another)?;
    let name = target.name;
    let message = format!(
        "target `{name}` has UUID {} by line {} of {}, and the one that is heard says {}: it is \
         another target, or it has lost its state. Ask its administrator; if it is the right one, \
         run `tyche key forget '{name}'`, and connect with --target-key ask",
        target.uuid,
        target.line,
        file.display(),
        other.target
    );
    Some(Error::new(Code::Refused, message))
}

/// The different keys that Offers say. Those that belong to nobody are left out.
fn said(offers: &[Offer]) -> Vec<PublicKey> {
    let keys = offers.iter().filter_map(|offer| PublicKey::from_bytes(offer.key?).ok());
    let mut keys: Vec<_> = keys.collect();
    keys.sort();
    keys.dedup();
    keys
}

/// Puts the question; returns whether the answer is yes, or the fingerprint of `key`.
///
/// # Errors
/// The terminal can't be read, or the answer is another fingerprint.
fn confirmed(
    input: &mut impl BufRead,
    ask: impl Fn(&str) -> io::Result<()>,
    question: &str,
    key: &PublicKey,
) -> Result<bool> {
    let mut question = question;
    for _ in 0..ANSWERS_MAX {
        ask(question)?;
        let mut answer = String::new();
        if input.read_line(&mut answer)? == 0 {
            return Ok(false);
        }
        match answer.trim() {
            "yes" => return Ok(true),
            "no" => return Ok(false),
            text if text == key.fingerprint() => return Ok(true),
            text if text.starts_with("SHA256:") => {
                let message = format!(
                    "the target says a key with the fingerprint {}, not {text}: not connected",
                    key.fingerprint()
                );
                return Err(Error::new(Code::Refused, message));
            }
            _ => question = "Type yes, no, or the fingerprint: ",
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use tyche_proto::crypto::SecretKey;

    use super::*;

    fn key(number: u8) -> PublicKey {
        SecretKey::from_random([number; 32]).public()
    }

    fn answer(text: &str) -> Result<bool> {
        confirmed(&mut text.as_bytes(), |_| Ok(()), "?", &key(1))
    }

    #[test]
    fn only_yes_and_the_fingerprint_are_a_yes() {
        let [ours, other] = [1, 2].map(|number| key(number).fingerprint());
        for text in ["yes\n", " yes \n", &format!("{ours}\n"), "y\nYES\nyes\n"] {
            assert!(answer(text).unwrap(), "{text:?}");
        }
        for text in ["no\n", "", "y\n", "y\ny\ny\nyes\n", &ours[7..]] {
            assert!(!answer(text).unwrap(), "{text:?}");
        }
        let error = answer(&format!("{other}\n")).unwrap_err();
        assert_eq!(error.code, Code::Refused);
        assert!(error.message.contains(&ours) && error.message.contains(&other), "{error}");
    }
}
