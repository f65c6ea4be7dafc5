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
DATA = $(sort $(wildcard pg_audit_queue--*.sql))

# The symbols that are not hidden
SHLIB_EXPORTS = exports.txt

# The version is that of the control file.
PAQ_VERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'.*/\1/p" \
	$(dir $(firstword $(MAKEFILE_LIST)))pg_audit_queue.control)

# Libraries for trail files that are compressed or encrypted.  Each may be missing:
# the settings that need it are refused then.  WITH_ZSTD=no, WITH_LZ4=no and
# WITH_OPENSSL=no leave one out that is there.
PKG_CONFIG ?= pkg-config
find_library = $(if $(filter no,$(1)),,$(shell $(PKG_CONFIG) --exists $(2) && echo $(2)))
PAQ_ZSTD := $(call find_library,$(WITH_ZSTD),libzstd)
PAQ_LZ4 := $(call find_library,$(WITH_LZ4),liblz4)
PAQ_OPENSSL := $(call find_library,$(WITH_OPENSSL),libcrypto)
PAQ_LIBRARIES := $(PAQ_ZSTD) $(PAQ_LZ4) $(PAQ_OPENSSL)
PAQ_FEATURES = $(if $(PAQ_ZSTD),-DPAQ_WITH_ZSTD) $(if $(PAQ_LZ4),-DPAQ_WITH_LZ4) \
	$(if $(PAQ_OPENSSL),-DPAQ_WITH_OPENSSL)

# Headers are included as "room/file.h".
PG_CPPFLAGS = -I$(srcdir)/src -DPAQ_VERSION='"$(PAQ_VERSION)"' $(PAQ_FEATURES)
ifneq ($(strip $(PAQ_LIBRARIES)),)
PG_CPPFLAGS += $(shell $(PKG_CONFIG) --cflags $(PAQ_LIBRARIES))
SHLIB_LINK = $(shell $(PKG_CONFIG) --libs $(PAQ_LIBRARIES))
endif

# make installcheck has two parts.  pg_regress connects to a running server
# (PGHOST, PGPORT, PGUSER: a superuser) that has this extension installed and
# shared_preload_libraries = 'pg_audit_queue', all other settings of the
# extension at their defaults; it creates the database contrib_regression.
# The tests in t/ start servers of their own, so they must not run as root, and
# need Perl's IPC::Run and PostgreSQL's modules for tests; where the server was
# configured without --enable-tap-tests they are left out with a message.
REGRESS = settings privileges functions
TAP_TESTS = 1

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
