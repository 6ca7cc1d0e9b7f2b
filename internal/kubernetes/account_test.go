package kubernetes

// SetAccount has the files of this process's pod be those of a directory, and returns what undoes that.
func SetAccount(dir string) (undo func()) {
	before := account
	account = dir
	return func() { account = before }
}
