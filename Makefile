#-------------------------------------------------------------------------
#
# Makefile for pg_audit_queue
#
#   make                    builds with the pg_config found first in PATH, or
#                           with the one named by PG_CONFIG=...
#   make install            needs write permission in PostgreSQL's folders
#   make installcheck       see below
#
# Developers who want everything built, checked and tested in one go, without
# a server of their own, use scripts/test.
#
#-------------------------------------------------------------------------

MODULE_big = pg_audit_queue
OBJS = $(patsubst %.c,%.o,$(sort pg_audit_queue.c $(wildcard src/*.c src/*/*.c)))
PGFILEDESC = "pg_audit_queue - audit trail through a shared queue"

EXTENSION = pg_audit_queue
DATA = $(sort $(wildcard pg_audit_queue--*.sql)) audit_policy.conf.sample

# The symbols that are not hidden
SHLIB_EXPORTS = exports.txt

# Headers are included as "room/file.h".
include $(dir $(firstword $(MAKEFILE_LIST)))src/Makefile.layers
PG_CPPFLAGS = -I$(srcdir)/src $(PAQ_CPPFLAGS)
SHLIB_LINK = $(PAQ_LAYER_LIBS)

# make installcheck has two parts.  pg_regress connects to a running server
# (PGHOST, PGPORT, PGUSER: a superuser) that has this extension installed and
# shared_preload_libraries = 'pg_audit_queue', all other settings of the
# extension at their defaults; it creates the database contrib_regression.
# The tests in t/ start servers of their own, so they must not run as root, and
# need Perl's IPC::Run and PostgreSQL's modules for tests; where the server was
# configured without --enable-tap-tests they are left out with a message.
REGRESS = settings privileges functions recording_settings classes outcome errors object_auditing columns cursors foreign_keys relations text_parts beyond_pgaudit
TAP_TESTS = 1
PROVE_TESTS = t/*/*.pl

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)

# A server that was built with LLVM wants bitcode of its extensions, but runs
# well without.  Do not make its compiler a condition of building.
PAQ_CLANG := $(shell sed -n 's/^CLANG = *//p' $(dir $(PGXS))../Makefile.global)
ifeq ($(shell command -v $(firstword $(PAQ_CLANG) none)),)
override with_llvm = no
endif

include $(PGXS)

# The one that the server was built with may not be there, where it was not built.
# Without it the library would export nothing.
ifeq ($(shell command -v $(firstword $(AWK) none)),)
override AWK = awk
endif

# PGXS tracks no headers.  Few enough to rebuild everything when one changes.
$(OBJS) $(OBJS:.o=.bc): $(wildcard src/*.h src/*/*.h) pg_audit_queue.control

# The program, which has a Makefile of its own.  It needs PostgreSQL's static
# libraries; a server may have come without them.
PAQ_PROGRAM_TARGETS = all install uninstall clean
$(PAQ_PROGRAM_TARGETS): %: program-%
$(addprefix program-,$(PAQ_PROGRAM_TARGETS)): program-%:
ifneq ($(wildcard $(pkglibdir)/libpgcommon.a $(libdir)/libpgcommon.a),)
	$(MAKE) -C $(srcdir)/src/bin/pg_audit_trail PG_CONFIG='$(PG_CONFIG)' $*
else
	@echo 'pg_audit_trail is left out: there is no libpgcommon.a'
endif
.PHONY: $(addprefix program-,$(PAQ_PROGRAM_TARGETS))
