//! What keys do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

pub(super) const HELP: &str = "q quit   p pause/go on   space refresh   down/up older/newer   home newest";

/// What the user chose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Controls {
    /// Whether the view is frozen.
    pub(super) paused: bool,
    /// How many of the latest decisions are scrolled past.
    pub(super) skipped: usize,
}

/// What a key requests beyond [`Controls`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyAction {
    Nothing,
    Refresh,
    Quit,
}

impl Controls {
    /// Handles a key while there are `decisions` to scroll through.
    pub(super) fn key(&mut self, key: KeyEvent, decisions: usize) -> KeyAction {
        if key.kind == KeyEventKind::Release {
            return KeyAction::Nothing;
        }
        let oldest = decisions.saturating_sub(1);
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return KeyAction::Quit,
            KeyCode::Char('q') | KeyCode::Esc => return KeyAction::Quit,
            KeyCode::Char(' ') => return KeyAction::Refresh,
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Down | KeyCode::Char('j') => self.skipped = (self.skipped + 1).min(oldest),
            KeyCode::Up | KeyCode::Char('k') => self.skipped = self.skipped.saturating_sub(1),
            KeyCode::Home => self.skipped = 0,
            _ => {}
        }
        KeyAction::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_what_the_help_says() {
        let mut controls = Controls::default();
        let mut press = |code| {
            let action = controls.key(KeyEvent::new(code, KeyModifiers::NONE), 3);
            (action, controls)
        };
        assert_eq!(press(KeyCode::Char('q')).0, KeyAction::Quit);
        assert_eq!(press(KeyCode::Char(' ')).0, KeyAction::Refresh);
        assert!(press(KeyCode::Char('p')).1.paused);
        assert!(!press(KeyCode::Char('p')).1.paused);
        // Down to the oldest of three, and no further.
        let skipped = [KeyCode::Down; 4].map(|code| press(code).1.skipped);
        assert_eq!(skipped, [1, 2, 2, 2]);
        assert_eq!(press(KeyCode::Up).1.skipped, 1);
        assert_eq!(press(KeyCode::Home).1.skipped, 0);
        assert_eq!(press(KeyCode::Up).1.skipped, 0);
        let mut none = Controls::default();
        assert_eq!(none.key(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE), 0), KeyAction::Nothing);
        assert_eq!(none.skipped, 0);
        assert_eq!(none.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), 0), KeyAction::Quit);
    }
}
