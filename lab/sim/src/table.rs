//! Tables of results, as CSV or Parquet.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use gleaner_print::Usage;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

/// File format of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text, with a line of names.
    Csv,
    /// Apache Parquet, not compressed.
    Parquet,
}

impl Format {
    /// Chosen by the file name's extension.
    ///
    /// # Errors
    /// The extension is neither `.csv` nor `.parquet`.
    pub fn of(path: &Path) -> Result<Self, Usage> {
        match path.extension().and_then(|e| e.to_str()) {
            Some("csv") => Ok(Self::Csv),
            Some("parquet") => Ok(Self::Parquet),
            _ => {
                let path = path.display();
                Err(Usage(format!("{path}: the ending decides the format; use .csv or .parquet")))
            }
        }
    }
}

/// Cells of a column; some can be empty.
#[derive(Debug, Clone, PartialEq)]
pub enum Cells {
    /// Whole numbers.
    Integers(Vec<Option<i64>>),
    /// Finite numbers.
    Floats(Vec<Option<f64>>),
    /// Texts.
    Texts(Vec<Option<String>>),
}

impl Cells {
    /// The integer `of` each row.
    pub fn integers<R>(rows: &[R], of: impl Fn(&R) -> u64) -> Self {
        Self::Integers(rows.iter().map(|row| i64::try_from(of(row)).ok()).collect())
    }

    /// The number `of` each row. Cells that are not finite stay empty.
    pub fn floats<R>(rows: &[R], of: impl Fn(&R) -> f64) -> Self {
        Self::Floats(rows.iter().map(|row| Some(of(row)).filter(|x| x.is_finite())).collect())
    }

    /// The text `of` each row.
    pub fn texts<R>(rows: &[R], of: impl Fn(&R) -> String) -> Self {
        Self::Texts(rows.iter().map(|row| Some(of(row))).collect())
    }

    fn len(&self) -> usize {
        match self {
            Self::Integers(cells) => cells.len(),
            Self::Floats(cells) => cells.len(),
            Self::Texts(cells) => cells.len(),
        }
    }

    fn text(&self, row: usize) -> String {
        match self {
            Self::Integers(cells) => cells[row].map(|n| n.to_string()),
            Self::Floats(cells) => cells[row].map(|x| x.to_string()),
            Self::Texts(cells) => cells[row].clone(),
        }
        .unwrap_or_default()
    }
}

/// Columns of the same length.
#[derive(Debug, Default)]
pub struct Table {
    columns: Vec<(String, Cells)>,
}

impl Table {
    /// Adds a column, which must be as long as the others.
    pub fn column(&mut self, name: &str, cells: Cells) {
        self.columns.push((name.to_owned(), cells));
    }

    /// The columns with their names, in order.
    pub fn columns(&self) -> &[(String, Cells)] {
        &self.columns
    }

    /// Writes the table.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write(&self, format: Format, out: impl Write + Send) -> anyhow::Result<()> {
        match format {
            Format::Csv => self.write_csv(out),
            Format::Parquet => self.write_parquet(out),
        }
    }

    fn write_csv(&self, out: impl Write) -> anyhow::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(self.columns.iter().map(|(name, _)| name))?;
        for row in 0..self.columns.first().map_or(0, |(_, cells)| cells.len()) {
            csv.write_record(self.columns.iter().map(|(_, cells)| cells.text(row)))?;
        }
        Ok(csv.flush()?)
    }

    fn write_parquet(&self, out: impl Write + Send) -> anyhow::Result<()> {
        let fields = self.columns.iter().map(|(name, cells)| field(name, cells)).collect::<Result<_, _>>()?;
        let schema = Type::group_type_builder("table").with_fields(fields).build()?;
        let properties = Arc::new(WriterProperties::builder().build());
        let mut file = SerializedFileWriter::new(out, Arc::new(schema), properties)?;
        let mut group = file.next_row_group()?;
        for (_, cells) in &self.columns {
            match cells {
                Cells::Integers(cells) => write::<_, Int64Type>(&mut group, cells, |n| *n)?,
                Cells::Floats(cells) => write::<_, DoubleType>(&mut group, cells, |x| *x)?,
                Cells::Texts(cells) => {
                    write::<_, ByteArrayType>(&mut group, cells, |t| ByteArray::from(t.as_str()))?;
                }
            }
        }
        group.close()?;
        file.close()?;
        Ok(())
    }
}

fn field(name: &str, cells: &Cells) -> Result<Arc<Type>, parquet::errors::ParquetError> {
    let physical = match cells {
        Cells::Integers(_) => Physical::INT64,
        Cells::Floats(_) => Physical::DOUBLE,
        Cells::Texts(_) => Physical::BYTE_ARRAY,
    };
    let logical = matches!(cells, Cells::Texts(_)).then_some(LogicalType::String);
    let builder = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
    builder.with_logical_type(logical).build().map(Arc::new)
}

fn write<T, D: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    cells: &[Option<T>],
    value: impl Fn(&T) -> D::T,
) -> anyhow::Result<()> {
    let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    let values: Vec<D::T> = cells.iter().flatten().map(value).collect();
    let mut column = group.next_column()?.context("a column is missing in the schema")?;
    column.typed::<D>().write_batch(&values, Some(&levels), None)?;
    Ok(column.close()?)
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::Field;

    use super::*;

    fn table() -> Table {
        let mut table = Table::default();
        table.column("n", Cells::Integers(vec![Some(1), None, Some(-3)]));
        table.column("x", Cells::floats(&[0.5, f64::NAN, 2.0], |x| *x));
        table.column("who", Cells::texts(&["a", "b, \"c\"", ""], |t| (*t).to_owned()));
        table
    }

    #[test]
    fn csv_quotes_what_needs_it_and_leaves_empty_what_is_not_there() {
        let mut out = Vec::new();
        table().write(Format::Csv, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "n,x,who\n1,0.5,a\n,,\"b, \"\"c\"\"\"\n-3,2,\n");
    }

    #[test]
    fn parquet_is_read_back_with_types_and_gaps() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        table().write(Format::Parquet, std::fs::File::create(&path).unwrap()).unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        let rows: Vec<Vec<Field>> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().get_column_iter().map(|(_, field)| field.clone()).collect())
            .collect();
        let text = |t: &str| Field::Str(t.to_owned());
        assert_eq!(
            rows,
            [
                vec![Field::Long(1), Field::Double(0.5), text("a")],
                vec![Field::Null, Field::Null, text("b, \"c\"")],
                vec![Field::Long(-3), Field::Double(2.0), text("")],
            ]
        );
    }

    #[test]
    fn the_ending_decides() {
        assert_eq!(Format::of(Path::new("a/b.csv")).unwrap(), Format::Csv);
        assert_eq!(Format::of(Path::new("b.parquet")).unwrap(), Format::Parquet);
        let error = Format::of(Path::new("b.json")).unwrap_err().to_string();
        assert_eq!(error, "b.json: the ending decides the format; use .csv or .parquet");
    }
}
