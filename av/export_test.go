package av

// The provider's side as methods of AV, for tests.

func (v *AV) Bind() error { return (*provider)(v).Bind() }
func (v *AV) Unbind()     { (*provider)(v).Unbind() }
