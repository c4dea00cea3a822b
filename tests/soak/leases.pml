/* The protocol of leases and appends: what workers do with one conversation of a store that others use too.

A store compares and writes in one step; between a look at the lease and the next change anything may happen. The
clocks of hosts differ by any amount, so whoever looks at a lease may find it expired at any time. A worker may take
its own lease again, or give it back, while an append that it began under the older one is still under way.
A process may die at any moment; when the power is lost, all do, and what was not synced is gone: each append is,
before it is acknowledged, and a lease is not.

`CLAIM` is the number of the claim that is checked, and `FAULT` that of a fault, or 0: with one a claim fails.
`tests/support/spin_models.py` gives both, and runs it. */

#define APPEND_IGNORES_TOKEN 1
#define RENEW_COMPARES_NOTHING 2
#define RELEASED_TOKEN_COMES_AGAIN 3
#define ACKNOWLEDGED_BEFORE_SYNC 4
#define APPEND_COMPARES_NOTHING 5

#define ONE_RECORD_FOR_EACH_NUMBER 1
#define NO_APPEND_UNDER_AN_OLDER_LEASE 2
#define NOTHING_ACKNOWLEDGED_IS_LOST 3
#define check(claim, holds)  assert(CLAIM != claim || (holds))

#define MOST_LEASES 3
#define MOST_RECORDS 2
#define MOST_RENEWALS 1

/* What the store has. */
byte token, holder, renewals; /* the newest lease; nobody holds it where `holder` is 0 */
byte count;                   /* records */

/* What is on the disk of it. */
byte synced_token, synced_count;

/* What nobody sees. */
byte leases;       /* how many were given */
byte acknowledged; /* records that somebody was told of as appended */
byte losses;       /* of the power */
bool was_written[MOST_RECORDS];

#define is_own      (token == own && holder == me)
#define is_as_seen  (token == seen_token && holder == seen_holder && renewals == seen_renewals)
#define is_in_order (count == next && (is_own || FAULT == APPEND_IGNORES_TOKEN))
#define may_append  (is_in_order || (FAULT == APPEND_COMPARES_NOTHING && count < MOST_RECORDS))
#define forget_look seen_token = 0; seen_holder = 0; seen_renewals = 0
#define forget_all  own = 0; lease = 0; boot = losses

proctype Worker(byte me) {
    byte own, lease;                             /* the token that it believes to have, and which lease it is */
    byte seen_token, seen_holder, seen_renewals; /* of the last look */
    byte next, boot;

end:
    do
    :: boot != losses -> atomic { forget_all } /* the power was lost */

    :: boot == losses && leases < MOST_LEASES -> /* take the lease */
        d_step { seen_token = token; seen_holder = holder; seen_renewals = renewals }
        if
        :: skip /* nobody holds it, or it has expired by the clock of this host */
        :: seen_holder != 0 && seen_holder != me -> /* another one holds it */
            d_step { forget_look }
            goto end
        fi
        atomic {
            if
            :: boot == losses && is_as_seen && leases < MOST_LEASES ->
                if
                :: FAULT == RELEASED_TOKEN_COMES_AGAIN && holder == 0 && token > 0 -> skip
                :: else -> token++
                fi
                holder = me; renewals = 0; leases++
                if
                :: own -> skip /* what was begun under the older one goes on */
                :: own = token; lease = leases
                fi
            :: else -> skip
            fi
            forget_look
        }

    :: boot == losses && own -> /* go on from what the log has */
        next = count
        if
        :: next < MOST_RECORDS ->
            atomic {
                if
                :: boot == losses && may_append ->
                    check(ONE_RECORD_FOR_EACH_NUMBER, !was_written[next])
                    check(NO_APPEND_UNDER_AN_OLDER_LEASE, lease == leases)
                    was_written[next] = true
                    count++
                    if
                    :: FAULT == ACKNOWLEDGED_BEFORE_SYNC -> acknowledged = count
                    :: else -> skip
                    fi
                :: else -> next = 0; goto end
                fi
            }
            atomic {
                if
                :: boot == losses ->
                    synced_count = count; synced_token = token /* the file is written in order */
                    acknowledged = (acknowledged > next + 1 -> acknowledged : next + 1)
                :: else -> skip
                fi
                next = 0
            }
        :: else -> next = 0
        fi

    :: boot == losses && own && renewals < MOST_RENEWALS -> /* renew */
        atomic {
            if
            :: boot == losses && (is_own || FAULT == RENEW_COMPARES_NOTHING) ->
                token = own; holder = me; renewals++
            :: else -> own = 0; lease = 0 /* it was lost */
            fi
        }

    :: boot == losses && own -> /* give it back */
        atomic {
            if
            :: boot == losses && is_own -> holder = 0
            :: else -> skip
            fi
            if
            :: own = 0; lease = 0
            :: skip /* what was begun under it goes on */
            fi
        }

    :: own -> atomic { own = 0; lease = 0 } /* it dies, and another process begins under its name or another one */
    od
}

proctype Power() {
end:
    do
    :: losses < 1 ->
        atomic {
            losses++
            if
            :: count = synced_count; token = synced_token; holder = 0
            :: skip /* all of it came to the disk in time */
            fi
            check(NOTHING_ACKNOWLEDGED_IS_LOST, acknowledged <= count)
            leases = (leases < MOST_LEASES - 1 -> leases : MOST_LEASES - 1) /* there is one left to give */
            if
            :: count <= 0 -> was_written[0] = false
            :: else -> skip
            fi
            if
            :: count <= 1 -> was_written[1] = false
            :: else -> skip
            fi
        }
    :: else -> break
    od
}

init {
    atomic { run Worker(1); run Worker(2); run Power() }
}
