// The MPI end of the rows M of testbed/bars: the loops of rank/main.go, by MPI.
//
//   ranks SECONDS TEST:BYTES...
//
// Rank 0 prints a line "TEST BYTES MICROSECONDS" for each, and "init 0 MICROSECONDS" first. Of a
// TEST.p99 the time is the 99th percentile.
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { window = 64 };
static int rank, size;
static char *a, *b;
static MPI_Request req[window];
#define W MPI_COMM_WORLD

static void lat(int n) {
	if (rank == 0) {
		MPI_Send(a, n, MPI_BYTE, 1, 1, W);
		MPI_Recv(b, n, MPI_BYTE, 1, 1, W, MPI_STATUS_IGNORE);
	} else if (rank == 1) {
		MPI_Recv(b, n, MPI_BYTE, 0, 1, W, MPI_STATUS_IGNORE);
		MPI_Send(a, n, MPI_BYTE, 0, 1, W);
	}
}

static void bw(int n) {
	char c;
	if (rank == 0) {
		for (int k = 0; k < window; k++)
			MPI_Isend(a, n, MPI_BYTE, 1, 1, W, &req[k]);
		MPI_Waitall(window, req, MPI_STATUSES_IGNORE);
		MPI_Recv(&c, 1, MPI_BYTE, 1, 2, W, MPI_STATUS_IGNORE);
	} else if (rank == 1) {
		for (int k = 0; k < window; k++)
			MPI_Irecv(b, n, MPI_BYTE, 0, 1, W, &req[k]);
		MPI_Waitall(window, req, MPI_STATUSES_IGNORE);
		MPI_Send(&c, 1, MPI_BYTE, 0, 2, W);
	}
}

static void barrier(int n) { (void)n; MPI_Barrier(W); }
static void bcast(int n) { MPI_Bcast(a, n, MPI_BYTE, 0, W); }
static void allreduce(int n) { MPI_Allreduce(a, b, n / 8, MPI_DOUBLE, MPI_SUM, W); }
static void alltoall(int n) { MPI_Alltoall(a, n, MPI_BYTE, b, n, MPI_BYTE, W); }

static struct { const char *name; void (*once)(int); int per; } tests[] = {
	{"lat", lat, 2}, {"bw", bw, window}, {"barrier", barrier, 1}, {"bcast", bcast, 1}, {"allreduce", allreduce, 1}, {"alltoall", alltoall, 1},
};

static double timed(void (*once)(int), int n, int rounds) {
	MPI_Barrier(W);
	double t = MPI_Wtime();
	for (int i = 0; i < rounds; i++)
		once(n);
	MPI_Barrier(W);
	return MPI_Wtime() - t;
}

static int up(const void *x, const void *y) {
	double d = *(const double *)x - *(const double *)y;
	return d < 0 ? -1 : d > 0;
}

// tail is the 99th percentile of 20,000 rounds, or of those of a minute. The first number that
// rank 0 sends says that a round is the last.
static double tail(void (*once)(int), int n) {
	static double took[20000];
	double begun = MPI_Wtime();
	int i = 0, last = 0;
	while (!last) {
		double t = MPI_Wtime();
		last = rank == 0 && (i == 19999 || t - begun > 60);
		*(double *)a = last;
		once(n);
		took[i++] = MPI_Wtime() - t;
		if (rank != 0)
			last = *(double *)b != 0;
	}
	qsort(took, i, sizeof *took, up);
	return took[(i * 99 + 99) / 100 - 1];
}

static void enough(int n) { (void)n; _exit(0); }

int main(int argc, char **argv) {
	struct timeval t0, t1;
	gettimeofday(&t0, NULL);
	MPI_Init(&argc, &argv);
	MPI_Barrier(W);
	gettimeofday(&t1, NULL);
	double init = (t1.tv_sec - t0.tv_sec) * 1e6 + (t1.tv_usec - t0.tv_usec), most;
	MPI_Comm_rank(W, &rank);
	MPI_Comm_size(W, &size);
	MPI_Allreduce(&init, &most, 1, MPI_DOUBLE, MPI_MAX, W);
	if (rank == 0)
		printf("init 0 %.3f\n", most);
	double seconds = atof(argv[1]);
	size_t longest = 1 << 16;
	for (int i = 2; i < argc; i++) {
		size_t n = atol(strchr(argv[i], ':') + 1) * (strncmp(argv[i], "alltoall", 8) ? 1 : size);
		if (n > longest)
			longest = n;
	}
	a = calloc(1, longest);
	b = calloc(1, longest);
	for (int i = 2; i < argc; i++) {
		char *colon = strchr(argv[i], ':');
		int n = atoi(colon + 1);
		*colon = 0;
		char *p99 = strstr(argv[i], ".p99");
		for (size_t k = 0; k < sizeof tests / sizeof *tests; k++) {
			if (strncmp(tests[k].name, argv[i], p99 ? (size_t)(p99 - argv[i]) : strlen(argv[i]) + 1))
				continue;
			if (p99) {
				double t = tail(tests[k].once, n) / tests[k].per;
				if (rank == 0) {
					printf("%s %d %.3f\n", argv[i], n, t * 1e6);
					fflush(stdout);
				}
				break;
			}
			timed(tests[k].once, n, 2);
			int rounds = seconds / (timed(tests[k].once, n, 4) / 4 + 1e-9);
			rounds = rounds < 4 ? 4 : rounds > 20000 ? 20000 : rounds;
			MPI_Bcast(&rounds, 1, MPI_INT, 0, W);
			double t = timed(tests[k].once, n, rounds) / rounds / tests[k].per;
			if (rank == 0) {
				printf("%s %d %.3f\n", argv[i], n, t * 1e6);
				fflush(stdout);
			}
		}
	}
	// MPI_Finalize of MPICH 4.0.2 over UCX hangs now and then: rank 0 closes connections to ranks that wait for the
	// launcher and answer no more. All figures are out: the line "end" says so.
	MPI_Barrier(W);
	if (rank == 0)
		printf("end\n");
	fflush(stdout);
	signal(SIGALRM, enough);
	alarm(2);
	MPI_Finalize();
	return 0;
}
