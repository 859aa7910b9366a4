//! The next key of a target that is known, or whose key was given.

use tyche_proto::NextKey;

use crate::KnownTargets;

/// Keeps the next key of a known target, and logs what has become of it. Where the user has given
/// the former key, he has to give the next one.
pub fn keep_next_key(said: &NextKey) {
    let NextKey { target, former, next } = said;
    let key = next.fingerprint();
    let kept = KnownTargets::read().and_then(|mut known| {
        let is_kept = known.renew(said)?;
        let knows = known.targets().iter().any(|it| (it.uuid, it.key) == (*target, *next));
        Ok((is_kept, knows, known))
    });
    match kept {
        Ok((true, _, known)) => {
            let file = known.path().display();
            tracing::info!(key, "the target changes its key: the next one is kept in {file}");
        }
        // Another session has kept it.
        Ok((false, true, _)) => {}
        Ok((false, false, _)) => tracing::warn!(
            "the target changes its key: give the next one, {next} ({key}), in the place of \
             {former} (--target-key, or `target-key=` in tychetab)"
        ),
        Err(error) => tracing::warn!(
            "the target changes its key, and the next one, {next} ({key}), is not kept in the \
             place of {former}: {error}"
        ),
    }
}
