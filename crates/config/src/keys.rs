//! `keys!`, the one definition of a table: its keys, their types, defaults, descriptions and how they are read.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use crate::reader::Reader;

/// A key and its value.
pub(crate) struct Entry<'e, 't> {
    /// With the tables that it is in, `metrics.listen`.
    pub(crate) key: &'e str,
    /// The key's place in the text, in bytes.
    pub(crate) at: Range<usize>,
    pub(crate) value: &'e Spanned<DeValue<'t>>,
}

/// A table of the file.
pub(crate) trait Table {
    /// The names of its keys.
    fn names() -> Vec<String>;

    /// Reads a key. Returns `false` if there is none of this name.
    fn set(&mut self, name: &str, entry: &Entry<'_, '_>, reader: &mut Reader<'_>) -> bool;
}

/// Defines a table. Each key says by which method of [`Reader`] it is read, and what that needs besides. The keys of
/// another table can be among its own.
macro_rules! keys {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $(also $inner:ident: $table:ty,)?
            $($(#[$doc:meta])* pub $field:ident: $type:ty = $default:expr, $read:ident $(($how:expr))?;)*
        }
    ) => {
        #[derive(Debug, Clone, PartialEq, serde::Serialize, schemars::JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        #[schemars(default, deny_unknown_fields)]
        $(#[$meta])*
        pub struct $name {
            $(
                /// What it applies to.
                #[serde(flatten)]
                pub $inner: $table,
            )?
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($inner: <$table>::default(),)? $($field: $default,)* }
            }
        }

        impl $crate::keys::Table for $name {
            fn names() -> Vec<String> {
                let mut names: Vec<String> = Vec::new();
                $(names.extend(<$table as $crate::keys::Table>::names());)?
                names.extend([$($crate::keys::kebab(stringify!($field))),*]);
                names
            }

            fn set(
                &mut self,
                name: &str,
                entry: &$crate::keys::Entry<'_, '_>,
                reader: &mut $crate::reader::Reader<'_>,
            ) -> bool {
                $(if name == $crate::keys::kebab(stringify!($field)) {
                    reader.$read(&mut self.$field, entry $(, $how)?);
                    return true;
                })*
                false $(|| self.$inner.set(name, entry, reader))?
            }
        }
    };
}
pub(crate) use keys;

/// A field's name as a key.
pub(crate) fn kebab(field: &str) -> String {
    field.replace('_', "-")
}
