// Package columns reads files of tasks that are stored by columns: Parquet. It is a room of its own because its library
// is large, and most programs that load tasks never see such a file.
package columns
