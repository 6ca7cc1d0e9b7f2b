// Package taskset has the prompts of a run that are data. They are read from JSON lines, from Parquet
// or from folders of Harbor tasks, checked, numbered, and split into training and held out. They are
// counted as they are played.
package taskset
