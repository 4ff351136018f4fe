// Package pmix lets programs that use mp find their ranks through PMIx: below Open MPI's
// mpirun, PRRTE's prterun and srun --mpi=pmix. It is imported for that alone:
//
//	import _ "github.com/uetkit/uetkit/mp/pmix"
//
// It opens libpmix.so.2 when a world is made and PMIX_RANK and PMIX_NAMESPACE are set. No cgo
// is needed, but the program becomes a dynamically linked one; this is why mp does not import
// it by itself. On other systems than Linux on amd64 and arm64 it does nothing.
package pmix
