/*-------------------------------------------------------------------------
 *
 * shared.c
 *		Memory that all processes of the stress program share, its random
 *		numbers, and the points at which processes die.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "stress.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fault.h"

Stress	   *stress = NULL;
bool		stress_verbose = false;
char	   *stress_context = NULL;

static uint64 random_state = 1;

void
stress_init(void)
{
	stress = mmap(NULL, sizeof(Stress), PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (stress == MAP_FAILED)
	{
		perror("mmap");
		exit(1);
	}
	paq_initialize_timing();
}

/* Say what is wrong, and let nobody go on. */
void
stress_fail(const char *fmt,...)
{
	va_list		args;

	fflush(stdout);
	fprintf(stderr, "FAILED (process %d): ", (int) getpid());
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr, "%s%s\n", stress_context ? ", " : "",
			stress_context ? stress_context : "");
	pg_atomic_write_u32(&stress->failed, 1);
	_exit(1);
}

void
stress_seed(uint64 seed)
{
	random_state = seed;
}

/* A mixture of a and b, the same each time. */
uint64
stress_hash(uint64 a, uint64 b)
{
	uint64		x = a * UINT64CONST(0x9E3779B97F4A7C15) + b;

	x = (x ^ (x >> 30)) * UINT64CONST(0xBF58476D1CE4E5B9);
	x = (x ^ (x >> 27)) * UINT64CONST(0x94D049BB133111EB);
	return x ^ (x >> 31);
}

uint64
stress_random64(void)
{
	return stress_hash(++random_state, UINT64CONST(0xD1B54A32D192ED03));
}

/* 0 to n - 1 */
uint32
stress_random(uint32 n)
{
	return stress_random64() % n;
}

bool
stress_chance(uint32 percent)
{
	return stress_random(100) < percent;
}

/* The point called name, which is made if it is new. */
Point *
stress_point(const char *name)
{
	uint32		n = pg_atomic_read_u32(&stress->npoints);
	uint32		new;

	for (uint32 i = 0; i < Min(n, MAX_POINTS); i++)
	{
		Point	   *point = &stress->points[i];

		if (pg_atomic_read_u32(&point->ready) != 0 &&
			strcmp(point->name, name) == 0)
			return point;
	}

	/* Two processes may make the same one: they are added up in the end. */
	new = pg_atomic_fetch_add_u32(&stress->npoints, 1);
	if (new >= MAX_POINTS)
		stress_fail("too many fault points");
	strlcpy(stress->points[new].name, name, sizeof(stress->points[new].name));
	pg_write_barrier();
	pg_atomic_write_u32(&stress->points[new].ready, 1);
	return &stress->points[new];
}

/* Who passes the point as the countdown-th dies there; "" disarms. */
void
stress_arm(const char *point, uint32 countdown)
{
	stress->armed[0] = '\0';
	pg_memory_barrier();
	pg_atomic_write_u32(&stress->countdown, countdown);
	pg_memory_barrier();
	strlcpy(stress->armed, point, sizeof(stress->armed));
}

/* See fault.h. */
int
paq_fault(const char *name)
{
	Point	   *point = stress_point(name);

	pg_atomic_fetch_add_u64(&point->passed, 1);
	if ((stress->armed[0] == '*' || strcmp(stress->armed, name) == 0) &&
		pg_atomic_fetch_sub_u32(&stress->countdown, 1) == 1)
	{
		pg_atomic_fetch_add_u64(&point->kills, 1);
		kill(getpid(), SIGKILL);
	}
	return 0;
}

/*
 * The process is going to change, or has changed, what outlives it.  Only in
 * between it is stepped, see step.c, because that takes time.
 */
void
stress_window(bool open)
{
	if (!stress->stepping)
		return;
	stress->in_window = open;
	if (open)
		raise(SIGTRAP);
}

/*
 * Positions of the live file are in their order, and do not go back, except
 * "drained", if the trail has to be written again.  Each is read before the
 * one that it must not overtake.  The end of a detour is reserved before the limit is
 * raised for what is behind it.
 */
void
stress_check_positions(void)
{
	static uint64 last_file = 0;
	static uint64 last_released;
	static uint64 last_reserved;
	PaqLive    *live = paq_live.live;
	uint64		released = pg_atomic_read_u64(&live->released);
	uint64		drained;
	uint64		reserved;
	uint64		detour;
	uint64		limit;

	pg_memory_barrier();
	drained = pg_atomic_read_u64(&live->drained);
	pg_memory_barrier();
	reserved = pg_atomic_read_u64(&live->reserved);
	pg_memory_barrier();
	detour = pg_atomic_read_u64(&live->detour);
	pg_memory_barrier();
	limit = pg_atomic_read_u64(&live->limit);
	pg_memory_barrier();

	if (last_file == paq_live.salt &&
		(released < last_released || reserved < last_reserved))
		stress_fail("a position went back: released %llu, reserved %llu",
					(unsigned long long) released, (unsigned long long) reserved);
	if (released > drained || drained > reserved)
		stress_fail("positions out of order: released %llu, drained %llu, reserved %llu",
					(unsigned long long) released, (unsigned long long) drained,
					(unsigned long long) reserved);
	if ((reserved > limit && reserved != detour) ||
		(released == pg_atomic_read_u64(&live->released) &&
		 limit - released > 2 * paq_live.ring_size))
		stress_fail("more is reserved than fits: released %llu, reserved %llu, limit %llu",
					(unsigned long long) released, (unsigned long long) reserved,
					(unsigned long long) limit);
	last_file = paq_live.salt;
	last_released = released;
	last_reserved = reserved;
}
