/* The abstract machine of specs/exhaustive/abstract.py, in Promela, written from its definition.

   Given with -D: N blocks with the null block 0, R requests, P shared pages, H hot blocks (each at
   least 1); ADOPT_AT, one of the three below; CHARGE, 0 or 1; CHECK, 1 to have a pop that finds no
   free block fail an assertion, else 0.

   One process for each thing that an action is about. Each has one control location and each action
   is one d_step, so a state of Spin is a valuation of the variables and nothing else. */

#define COMMIT 0
#define ALLOCATION 1
#define END_OF_STEP 2

#define WAITING 0
#define POPPING 1
#define LANDED 2
#define RUNNING 3
#define ENDED 4

#define ABSENT 0
#define DIRTY 1
#define PENDING 2
#define CLEAN 3
#define UNPINNED 4

typedef Request {
  byte phase;
  bit hit;
  byte row[P + 1];  /* the block of each shared page, then of the page of its own */
  byte mode[P + 1];
  byte hot[H]
}

bit published;
byte copy[P];
bit writing[N];
Request request[R];

/* What follows from the variables above. tally(), which ends each action, recomputes it: it adds no
   state. */
bit held[N];
byte room = N - 1;    /* free blocks */
byte free_copies;     /* copies that nobody holds */
byte popping;         /* 1 + the request that is popping, 0 if none is */

byte i, j, k;         /* scratch, 0 between actions */

inline tally() {
  for (i : 0 .. N - 1) { held[i] = writing[i] }
  popping = 0;
  for (i : 0 .. R - 1) {
    if :: request[i].phase == POPPING -> popping = i + 1 :: else fi;
    for (j : 0 .. P) {
      if :: request[i].mode[j] != UNPINNED -> held[request[i].row[j]] = 1 :: else fi
    }
    for (j : 0 .. H - 1) { held[request[i].hot[j]] = 1 }
  }
  held[0] = 0;
  room = 0;
  for (i : 1 .. N - 1) { room = room + !held[i] }
  free_copies = 0;
  for (i : 0 .. P - 1) { free_copies = free_copies + (copy[i] != 0 && !held[copy[i]]) }
  i = 0; j = 0; k = 0;
  assert(!CHECK || !popping || room > 0)
}

inline adopt(r) {
  if
  :: request[r].hit ->
     for (i : 0 .. P - 1) {
       request[r].row[i] = copy[i];
       request[r].mode[i] = (copy[i] != 0 -> CLEAN : ABSENT)
     }
  :: else
  fi
}

/* All that named block b without holding it forgets it. */
inline forget(b) {
  for (i : 0 .. P - 1) { if :: copy[i] == b -> copy[i] = 0 :: else fi }
  for (i : 0 .. R - 1) {
    for (j : 0 .. P) {
      if
      :: request[i].row[j] == b -> request[i].row[j] = 0; request[i].mode[j] = ABSENT
      :: else
      fi
    }
  }
}

/* A hit needs its own page, then the hot blocks; any other request all its pages. In this order. */
inline take(r, b) {
  if
  :: request[r].hit && request[r].row[P] != 0 ->
     k = 0;
     do :: request[r].hot[k] != 0 -> k++ :: else -> break od;
     request[r].hot[k] = b
  :: else ->
     k = (request[r].hit -> P : 0);
     do :: request[r].row[k] != 0 -> k++ :: else -> break od;
     request[r].row[k] = b;
     request[r].mode[k] = DIRTY
  fi
}

#define HAS_ALL(r) (request[r].hit -> request[r].hot[H - 1] != 0 : request[r].row[P] != 0)

inline pop(r, b) {
  forget(b);
  take(r, b);
  if
  :: HAS_ALL(r) && request[r].hit && ADOPT_AT == END_OF_STEP -> request[r].phase = LANDED
  :: HAS_ALL(r) && !(request[r].hit && ADOPT_AT == END_OF_STEP) ->
     request[r].phase = RUNNING;
     if :: ADOPT_AT == ALLOCATION -> adopt(r) :: else fi
  :: else
  fi
}

inline complete(b) {
  writing[b] = 0;
  for (i : 0 .. R - 1) {
    for (j : 0 .. P - 1) {
      if
      :: request[i].row[j] == b && request[i].mode[j] == PENDING ->
         request[i].mode[j] = CLEAN;
         publish(i)
      :: else
      fi
    }
  }
}

/* Once every shared page of r is on the host, others find the pages and their copies. */
inline publish(r) {
  k = 0;
  do :: k < P && request[r].mode[k] == CLEAN -> k++ :: else -> break od;
  if
  :: k == P ->
     published = 1;
     for (k : 0 .. P - 1) { copy[k] = request[r].row[k] }
  :: else
  fi
}

inline leave(r, next) {
  for (i : 0 .. P) { request[r].row[i] = 0; request[r].mode[i] = ABSENT }
  for (i : 0 .. H - 1) { request[r].hot[i] = 0 }
  request[r].hit = 0;
  request[r].phase = next
}

#define NEED (published -> 1 + H + CHARGE * free_copies : P + 1)

/* Processes are numbered from 0, in the order in which they are written here. */
#define B (_pid + 1)
active [N - 1] proctype block() {
  end: do
  :: d_step { popping && !held[B] -> pop(popping - 1, B); tally() }
  :: d_step { !popping && writing[B] -> complete(B); tally() }
  od
}

#define SELF (_pid - (N - 1))
#define ME request[SELF]
active [R] proctype life() {
  end: do
  :: d_step { !popping && ME.phase == WAITING && NEED <= room ->
       ME.phase = POPPING;
       ME.hit = published;
       if :: ADOPT_AT == COMMIT -> adopt(SELF) :: else fi;
       tally() }
  :: d_step { !popping && ME.phase == LANDED -> ME.phase = RUNNING; adopt(SELF); tally() }
  :: d_step { !popping && ME.phase == RUNNING -> leave(SELF, WAITING); tally() }  /* preempted */
  :: d_step { !popping && ME.phase == RUNNING -> leave(SELF, ENDED); tally() }
  od
}

#define PLACE (_pid - (N - 1) - R)
#define OWNER request[PLACE / P]
#define PAGE (PLACE % P)
active [R * P] proctype page() {
  end: do
  :: d_step { !popping && OWNER.phase == RUNNING && OWNER.mode[PAGE] == DIRTY ->
       OWNER.mode[PAGE] = PENDING; writing[OWNER.row[PAGE]] = 1; tally() }
  :: d_step { !popping && OWNER.phase == RUNNING && OWNER.hit && OWNER.mode[PAGE] == CLEAN ->
       OWNER.mode[PAGE] = UNPINNED; tally() }
  od
}
