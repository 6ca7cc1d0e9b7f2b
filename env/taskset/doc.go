// Package taskset has the prompts of a run that are data: read from JSON lines, from Parquet or
// from folders of Harbor tasks, checked, numbered, split into training and held out, and counted
// as they are played.
package taskset
