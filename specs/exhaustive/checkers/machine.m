-- The abstract machine of specs/exhaustive/abstract.py, in Murphi, written from its definition.
--
-- Put in front: constants N (blocks, with the null block), R (requests), P (shared pages), H (hot
-- blocks), each at least 1; ADOPT_AT, one of the three below; CHARGE, 0 or 1. To have the rule
-- checked, put capacity.m behind.
--
-- Blocks and requests are scalarsets: with symmetry reduction the same text gives the states up to
-- renaming. The null block is none of them.

const
  COMMIT: 0;
  ALLOCATION: 1;
  END_OF_STEP: 2;

type
  Block: scalarset(N - 1);  -- undefined: no block
  Request: scalarset(R);
  SharedPage: 0 .. P - 1;
  Page: 0 .. P;             -- the last is the request's own
  Hot: 0 .. H - 1;
  Phase: enum { waiting, popping, landed, running, ended };
  Mode: enum { absent, dirty, pending, clean, unpinned };

var
  published: boolean;
  copy: array [SharedPage] of Block;
  writing: array [Block] of boolean;
  phase: array [Request] of Phase;
  hit: array [Request] of boolean;
  row: array [Request] of array [Page] of Block;
  mode: array [Request] of array [Page] of Mode;
  hot: array [Request] of array [Hot] of Block;

function in_row(r: Request; p: Page; b: Block): boolean;
begin
  return !isundefined(row[r][p]) & row[r][p] = b;
end;

function held(b: Block): boolean;
begin
  return writing[b]
    | (exists r: Request do
        (exists h: Hot do !isundefined(hot[r][h]) & hot[r][h] = b end)
        | (exists p: Page do in_row(r, p, b) & mode[r][p] != unpinned end)
      end);
end;

function free_blocks(): 0 .. N;
var count: 0 .. N;
begin
  count := 0;
  for b: Block do
    if !held(b) then count := count + 1; end;
  end;
  return count;
end;

function need(): 0 .. 1 + H + P;
var count: 0 .. 1 + H + P;
begin
  if !published then return P + 1; end;
  count := 1 + H;
  if CHARGE = 1 then
    for p: SharedPage do
      if !isundefined(copy[p]) then
        if !held(copy[p]) then count := count + 1; end;
      end;
    end;
  end;
  return count;
end;

function somebody_pops(): boolean;
begin
  return exists r: Request do phase[r] = popping end;
end;

function has_all(r: Request): boolean;
begin
  if hit[r] then
    return !isundefined(row[r][P]) & (forall h: Hot do !isundefined(hot[r][h]) end);
  end;
  return forall p: Page do !isundefined(row[r][p]) end;
end;

procedure drop(r: Request; p: Page);
begin
  undefine row[r][p];
  mode[r][p] := absent;
end;

procedure adopt(r: Request);
begin
  if hit[r] then
    for p: SharedPage do
      if isundefined(copy[p]) then
        drop(r, p);
      else
        row[r][p] := copy[p];
        mode[r][p] := clean;
      end;
    end;
  end;
end;

-- The block goes from what names it without holding it: records of copies, and readers.
procedure evict(b: Block);
begin
  for p: SharedPage do
    if !isundefined(copy[p]) & copy[p] = b then undefine copy[p]; end;
  end;
  for r: Request do
    for p: Page do
      if in_row(r, p, b) then drop(r, p); end;
    end;
  end;
end;

procedure place(r: Request; b: Block);
begin
  for p: Page do
    if isundefined(row[r][p]) & (!hit[r] | p = P) then
      row[r][p] := b;
      mode[r][p] := dirty;
      return;
    end;
  end;
  for h: Hot do
    if isundefined(hot[r][h]) then
      hot[r][h] := b;
      return;
    end;
  end;
end;

procedure leave(r: Request; next: Phase);
begin
  for p: Page do drop(r, p); end;
  for h: Hot do undefine hot[r][h]; end;
  hit[r] := false;
  phase[r] := next;
end;

startstate
begin
  published := false;
  for p: SharedPage do undefine copy[p]; end;
  for b: Block do writing[b] := false; end;
  for r: Request do leave(r, waiting); end;
end;

ruleset r: Request; b: Block do
  rule "pop" phase[r] = popping & !held(b) ==>
  begin
    evict(b);
    place(r, b);
    if has_all(r) then
      if hit[r] & ADOPT_AT = END_OF_STEP then
        phase[r] := landed;
      else
        phase[r] := running;
        if ADOPT_AT = ALLOCATION then adopt(r); end;
      end;
    end;
  end;
end;

ruleset r: Request do
  rule "admit" !somebody_pops() & phase[r] = waiting & need() <= free_blocks() ==>
  begin
    phase[r] := popping;
    hit[r] := published;
    if ADOPT_AT = COMMIT then adopt(r); end;
  end;

  rule "land" !somebody_pops() & phase[r] = landed ==>
  begin
    phase[r] := running;
    adopt(r);
  end;

  rule "preempt" !somebody_pops() & phase[r] = running ==>
  begin
    leave(r, waiting);
  end;

  rule "finish" !somebody_pops() & phase[r] = running ==>
  begin
    leave(r, ended);
  end;
end;

ruleset r: Request; p: SharedPage do
  rule "write" !somebody_pops() & phase[r] = running & mode[r][p] = dirty ==>
  begin
    mode[r][p] := pending;
    writing[row[r][p]] := true;
  end;

  rule "unpin" !somebody_pops() & phase[r] = running & hit[r] & mode[r][p] = clean ==>
  begin
    mode[r][p] := unpinned;
  end;
end;

ruleset b: Block do
  rule "complete" !somebody_pops() & writing[b] ==>
  begin
    writing[b] := false;
    for r: Request do
      for p: SharedPage do
        if in_row(r, p, b) & mode[r][p] = pending then
          mode[r][p] := clean;
          if forall q: SharedPage do mode[r][q] = clean end then
            published := true;
            for q: SharedPage do copy[q] := row[r][q]; end;
          end;
        end;
      end;
    end;
  end;
end;
