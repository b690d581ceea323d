"""Constraints of Krake's documents and of krake-spec 2, by what our languages make of them."""

from __future__ import annotations

VALID_LABELS = (
    *("location is DE", "location = DE", "location=DE", "location==DE", " location  is   DE "),
    *("location is not DE", "location != DE", "location!=DE", "location isnot DE"),
    *("location in (DE, SK)", "location in(DE,SK)", "location in ( DE , SK )"),
    *("location in (DE, SK,)", "location in (DE, SK,,,)"),
    *("location notin (DE)", "location not in(DE)", "location is not", "is is is"),
    *("in in (in)", "not not in (a)", "location in (DE, DE)", "a/b=c", "a=_c_", "_a=c"),
    *("location is\tDE", "location\tis DE", f"a={'v' * 63}", f"{'k' * 63}=v"),
    f"{'p' * 253}/k=v",
)
INVALID_LABELS = (
    *("locationis DE", "location isDE", "location IS DE", "location In (DE)"),
    *("location in ()", "location in (,DE)", "location in (DE,,SK)", "location in (DE SK)"),
    *("location in [DE)", "location in DE, SK", "location in (DE", "location === DE", "= = DE"),
    *("location ! = DE", "location =! DE", "location <> DE", "a=b=c", "location is", "location ="),
    *(
        "",
        "   ",
        "location is DE, SK",
        "location is DE and country is DE",
        "location is not in (DE)",
    ),
    *("a location = DE", "location is 'DE'", 'location is "DE"', "a/b/c=c", "/a=c", "a/=c", "-a=c"),
    *("a-=c", ".=c", "ä=c", f"{'k' * 64}=v", f"{'p' * 254}/k=v", "a=c-", "a=.c", "a=b/c"),
    *("a=b:c", "a=ä", f"a={'v' * 64}", "\nlocation is DE", "location is DE\n", "location\nis DE"),
)
VALID_METRICS = (
    *("load > 5", "load >5", "load>5", "load gt 5", "load greater than 5", "load greaterthan 5"),
    *("load >= 5", "load=> 5", "load>=5", "load gte 5", "load greater than or equal 5"),
    *("load < 5", "load lt 5", "load lesser than 5", "load less than 5"),
    *("load <= 5", "load =< 5", "load lte 5", "load lesser than or equal 5"),
    *(
        "load less than or equal 5",
        "load is 5",
        "load == 5",
        "load=5",
        "load is not 5",
        "load != 5",
    ),
    *("load > -5", "load > +5", "load > 0.5", "load > 1e3", "green_energy_ratio_1>5"),
)
INVALID_METRICS = (
    *("load gt5", "load gte5", "load lte5", "load greater than or", "load is greater than 5"),
    *("load greater than or equal to 5", "load equals 5", "load not equal to 5"),
    *("load is over 9000", "load > 5,0", "load in (5)", "load >> 5", "load > = 5", "load <=> 5"),
    *("load > .5", "load > 5.", "load > 1_000", "load > nan", "load > inf", "load > abc"),
    *("load > 1e999", "load", "load >", "> 5", "", "load > 5 and heat > 5", "-load > 5"),
)
